"""What `@job(redact=[...])` names is shown nowhere: pages are tried in `test_jobs_detail.py`, the rest here."""

from __future__ import annotations

import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.test import RequestFactory
from django.views.debug import SafeExceptionReporterFilter

import django_reliable_jobs
from django_reliable_jobs import AlreadyEnqueued, PayloadError, payload
from django_reliable_jobs.definitions import redaction
from django_reliable_jobs.models import JobStatus
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.worker import log
from django_reliable_jobs.worker.handlers import executor
from tests.support.factories import JobFactory, lease_of
from tests.support.probes.jobs import echo, hides

CARD = "4111222233334444"
HIDDEN = redaction.HIDDEN


@pytest.mark.parametrize(
    ("args", "kwargs", "shown"),
    [
        ([1, CARD], {}, ([1, HIDDEN], {})),
        ([1], {"card": CARD}, ([1], {"card": HIDDEN})),
        ([], {"order": 1, "card": None, "token": CARD}, ([], {"order": 1, "card": HIDDEN, "token": HIDDEN})),
        ([1, CARD, "rest"], {}, ([1, HIDDEN, "rest"], {})),
        ([], {}, ([], {})),
    ],
)
def test_arguments_are_hidden_by_name_wherever_they_stand(args: Any, kwargs: Any, shown: Any) -> None:
    assert redaction.hide(hides, args, kwargs) == shown


def test_a_job_without_redaction_shows_all_and_an_unknown_one_nothing() -> None:
    assert redaction.hide(echo, [CARD], {"a": 1}) == ([CARD], {"a": 1})
    assert redaction.hide(None, [CARD], {"a": 1}) == ([HIDDEN], {"a": HIDDEN})
    assert redaction.secrets(echo, [CARD], {}) == []
    assert redaction.secrets(None, [CARD], {}) == []


def test_values_are_found_in_text_at_any_depth_but_not_the_short_ones() -> None:
    value = {
        "number": [CARD, {"cvc": 12, "amount": Decimal("12.50")}],
        "until": date(2027, 3, 1),
        "on": True,
        "no": None,
    }
    found = redaction.secrets(hides, [1234, value], {})
    text = f"{CARD} 12 12.50 {date(2027, 3, 1)} True None number 1234 {value!r}"
    scrubbed = redaction.scrub(text, found)
    for secret in (CARD, "12.50", "2027-03-01"):
        assert secret not in scrubbed
    for harmless in ("True", "None", "number", "1234", "'cvc': 12"):
        assert harmless in scrubbed


def test_quotes_and_line_ends_in_a_value_are_found_as_repr_shows_them() -> None:
    secret = "it's\na secret"
    found = redaction.secrets(hides, [1, secret], {})
    assert redaction.scrub(f"{secret!r} {[secret]!r} {secret}", found) == f"{HIDDEN!r} {[HIDDEN]!r} {HIDDEN}".replace(
        repr(HIDDEN), f'"{HIDDEN}"'
    )


def test_a_large_value_does_not_take_for_ever() -> None:
    found = redaction.secrets(hides, [1, [f"secret number {number}" for number in range(100_000)]], {})
    assert 0 < len(found) <= redaction.MOST


def attempted(**kwargs: Any) -> Attempt:
    texts = payload.dumps_call((7,), kwargs, hides.parameter_names, 1000)
    lease = lease_of(JobFactory.build(id=1, running=False, name=hides.name), args=texts[0], kwargs=texts[1], token=1)
    attempt = Attempt(lease)
    attempt.outcome = executor.execute(attempt, hides, lambda args, named: hides.call(*args, **named))
    return attempt


def test_an_error_is_kept_and_logged_without_what_it_quotes(caplog: pytest.LogCaptureFixture) -> None:
    attempt = attempted(card=CARD, token="tok_secret")
    outcome = attempt.outcome
    assert outcome is not None
    assert outcome.error is not None
    assert outcome.status is JobStatus.FAILED
    assert f"order 7: the card {HIDDEN} was refused" in outcome.error.message
    assert "raise ValueError" in outcome.error.traceback
    log.not_done(attempt)
    for text in (outcome.error.message, outcome.error.traceback, caplog.text):
        assert CARD not in text
        assert "tok_secret" not in text
    assert "order 7" in caplog.text


@pytest.mark.parametrize(
    "call",
    [
        lambda: hides.enqueue(1, CARD, object()),
        lambda: hides.enqueue(1, [CARD, {CARD}]),
        lambda: hides.enqueue(order=1, card=CARD + "\0"),
        lambda: hides.using(unique_key=lambda order, card: int(card)).enqueue(1, CARD),
        lambda: hides.using(unique_key=lambda order, card: card * 100).enqueue(1, CARD),
        lambda: hides.enqueue_many([CARD]),
        lambda: hides.enqueue_many([{CARD}]),
        lambda: hides.enqueue(1, CARD, order=2),
    ],
)
def test_what_enqueue_refuses_is_told_without_the_values(call: Any) -> None:
    with pytest.raises((PayloadError, TypeError, ValueError)) as error:
        call()
    assert CARD not in str(error.value)


@pytest.mark.django_db
def test_a_clash_is_told_without_the_key() -> None:
    job = hides.using(unique_key=lambda order, card: f"card-{card}", if_exists="raise")
    job.enqueue(1, CARD)
    with pytest.raises(AlreadyEnqueued) as error:
        job.enqueue(1, CARD)
    assert CARD not in str(error.value)


PACKAGE = str(Path(django_reliable_jobs.__file__).parent)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "call",
    [lambda: hides.enqueue(1, CARD, object()), lambda: hides.enqueue_many([(1, CARD, object())])],
    ids=["enqueue", "enqueue_many"],
)
def test_an_error_page_shows_no_local_variable_of_an_enqueue(call: Any, settings: Any) -> None:
    settings.DEBUG = False
    reporter = SafeExceptionReporterFilter()
    seen = 0
    try:
        call()
    except PayloadError:
        traceback = sys.exc_info()[2]
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename.startswith(PACKAGE):
                seen += 1
                shown = dict(reporter.get_traceback_frame_variables(RequestFactory().get("/"), traceback.tb_frame))
                assert CARD not in repr(shown)
            traceback = traceback.tb_next
    assert seen >= 3


def test_an_error_page_of_a_call_hides_the_parameters_that_are_redacted(settings: Any) -> None:
    settings.DEBUG = False
    reporter, names = SafeExceptionReporterFilter(), []
    try:
        hides.call(7, CARD)
    except ValueError:
        traceback = sys.exc_info()[2]
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename != __file__:
                shown = dict(reporter.get_traceback_frame_variables(RequestFactory().get("/"), traceback.tb_frame))
                assert CARD not in repr(shown)
                names.append(traceback.tb_frame.f_code.co_name)
                last = shown
            traceback = traceback.tb_next
    assert names[-1] == "hides"
    assert last["order"] == 7, "the others help to find the error"
