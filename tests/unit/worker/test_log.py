"""What log records about attempts bear for error trackers (case N09), and how often the same is said."""

from __future__ import annotations

import gc
import logging
import pickle
import traceback
import weakref
from typing import Any

import pytest

from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.errors import HandlerError, Retry
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.values import log_limit, outcome
from django_reliable_jobs.values.lease import Lease
from django_reliable_jobs.values.log_limit import LogLimit
from django_reliable_jobs.values.outcome import ErrorRecord
from django_reliable_jobs.worker import log
from django_reliable_jobs.worker.handlers import executor
from tests.unit.running.test_attempt import lease

FIELDS = {"job_id": 1, "job_name": "probes.noop", "job_queue": "default", "job_attempt": 1}


class Trouble(LookupError):
    pass


def fails(card: str) -> None:
    """A handler."""
    secret = card
    try:
        raise ValueError(f"the card {secret} was refused")
    except ValueError as error:
        raise Trouble(f"no order for {secret}") from error


def failed(redact: frozenset[str] = frozenset(), *, last: bool = False, handler: Any = fails) -> Attempt:
    definition = JobDefinition(handler, "probes.noop", backoff=(4.0,), redact=redact)
    made = Attempt(lease(args='["4111-1111"]', max_attempts=1 if last else 5))
    made.decide(executor.execute(made, definition, lambda args, kwargs: handler(*args, **kwargs)))
    return made


def logged(attempt: Attempt, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    with caplog.at_level(logging.DEBUG):
        log.not_done(attempt)
    return caplog.records[-1]


def formatted(record: logging.LogRecord) -> str:
    return logging.Formatter("%(levelname)s %(message)s").format(record)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in FIELDS}


@pytest.mark.parametrize("last", [False, True])
def test_a_failure_carries_its_exception_with_the_handlers_own_frames(
    caplog: pytest.LogCaptureFixture, last: bool
) -> None:
    record = logged(failed(last=last), caplog)
    assert record.exc_info is not None
    kind, error, trace = record.exc_info
    assert (kind, str(error)) == (Trouble, "no order for 4111-1111")
    names = [frame.name for frame in traceback.extract_tb(trace)]
    assert names[-1] == "fails"
    assert "execute" not in names, "the worker's own frames come first, and say nothing"
    assert "the card 4111-1111 was refused" in formatted(record)
    assert fields(record) == FIELDS
    assert record.levelname == ("ERROR" if last else "WARNING")


def test_of_a_job_that_hides_values_only_scrubbed_text(caplog: pytest.LogCaptureFixture) -> None:
    """The frames of the exception have the values as locals, and what it was raised from quotes them."""
    record = logged(failed(frozenset({"card"})), caplog)
    assert record.exc_info is not None
    kind, error, trace = record.exc_info
    assert (kind, trace) == (HandlerError, None)
    text = formatted(record)
    assert "4111" not in text
    assert "Trouble: no order for ********" in text
    assert "in fails" in text, "where it was is told"
    assert fields(record) == FIELDS
    while error is not None:
        assert error.__traceback__ is None
        assert "4111" not in repr(error)
        error = error.__cause__ or error.__context__


def test_an_error_that_came_from_a_child_process_carries_its_text(caplog: pytest.LogCaptureFixture) -> None:
    made = failed()
    assert made.outcome is not None
    there = Attempt(lease())
    there.decide(pickle.loads(pickle.dumps(made.outcome)))
    text = formatted(logged(there, caplog))
    assert "Trouble: no order for 4111-1111" in text
    assert "in fails" in text


def test_an_attempt_that_asked_for_another_has_no_exception(caplog: pytest.LogCaptureFixture) -> None:
    def asks(card: str) -> None:
        raise Retry(5, "not yet")

    record = logged(failed(handler=asks), caplog)
    assert not record.exc_info
    assert fields(record) == FIELDS


def test_an_exception_is_let_go_once_it_is_logged() -> None:
    """Its frames hold what the handler had in its hands."""

    class Big:
        pass

    seen: list[weakref.ref[Big]] = []

    def holds(card: str) -> None:
        big = Big()
        seen.append(weakref.ref(big))
        raise ValueError(card)

    made = failed(handler=holds)
    gc.disable()
    logging.disable()  # pytest keeps its records
    try:
        log.not_done(made)
        assert seen[0]() is None
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()


def test_what_fails_under_all_jobs_is_said_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(log, "_limit", LogLimit())
    monkeypatch.setattr(log_limit.time, "monotonic", lambda: now[0])
    for _ in range(100):
        made = Attempt(lease())
        made.decide(outcome.infrastructure(1.0, ErrorRecord("OperationalError", "gone", "")))
        log.not_done(made)
        log.unbegun(made, "gone")
    assert len(caplog.records) == 1
    now[0] += 60
    log.unbegun(Attempt(lease()), "gone")
    assert caplog.records[-1].getMessage().endswith("(199 more since the last message)")


@pytest.mark.parametrize(
    ("failures", "attempt", "status", "says"),
    [
        (0, 1, "FAILED", None), (2, 4, "FAILED", None), (0, 5, "DEAD", "it was the last attempt"),
        (3, 1, "FAILED", "handed back 3 times before"),
    ],
)  # fmt: skip
def test_three_times_it_is_not_the_jobs_fault(failures: int, attempt: int, status: str, says: str | None) -> None:
    """Case D04; on the last attempt it counts, since `max_attempts` bounds how often a job is begun."""
    made: Lease = lease(attempt=attempt)._replace(infrastructure_failures=failures)
    definition = JobDefinition(fails, "probes.noop", backoff=(0.0,))
    error = OSError("the server is gone")
    came = executor.outcome_of_error(Attempt(made), definition, error, lambda error: "the database ended it")
    assert (came.status, came.give_back) == (status, says is None)
    assert came.error is not None
    if says is None:
        assert came.delay is not None
        assert executor.FREE_PAUSES[failures] / 2 <= came.delay <= executor.FREE_PAUSES[failures]
        assert came.error.message == "the server is gone"
    else:
        assert came.error.message == f"the server is gone [the database ended it; {says}]"
