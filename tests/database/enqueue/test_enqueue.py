"""Enqueue in one session: what is stored, what the keys do, what is refused. Races are in `tests/races`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from django_reliable_jobs import AlreadyEnqueued, StaleToken, job
from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.store import checkpoint
from django_reliable_jobs.store.reap import expire
from django_reliable_jobs.values.lease import LeaseKey
from tests.support.factories import EchoFactory, JobCheckpointFactory, ago, next_token
from tests.support.probes.jobs import echo, noop
from tests.support.sessions import fetch

pytestmark = pytest.mark.django_db

FINISHED = {"done": "DONE", "dead": "DEAD", "cancelled": "CANCELLED"}


@job(queue="mail", priority=4, max_attempts=None, timeout=None, expires=3600, unique_key=lambda number: f"n{number}")
def configured(number: int) -> None:
    pass


def test_the_row_says_what_was_asked_for() -> None:
    before = timezone.now()
    made = echo.using(
        queue="mail", priority=-7, delay=timedelta(minutes=5), expires=600, max_attempts=2, timeout=9,
        unique_key="u", idempotency_key="i",
    ).enqueue(value=UUID(int=1))  # fmt: skip
    after = timezone.now()
    stored = Job.objects.get()
    assert made.created is True
    for row in (made, stored):
        assert (row.pk, row.name, row.queue, row.status, row.reason) == (stored.pk, "probes.echo", "mail", "QUEUED", "")
        assert (row.priority, row.max_attempts, row.timeout, row.attempts, row.losses) == (-7, 2, 9.0, 0, 0)
        assert (row.unique_key, row.unique_until_start, row.idempotency_key) == ("u", False, "i")
        assert row.arguments == ([], {"value": UUID(int=1)})
        assert (row.locked_by, row.locked_until, row.fencing_token, row.started_at, row.finished_at) == (
            None, None, 0, None, None,
        )  # fmt: skip
        assert before + timedelta(minutes=5) <= row.run_at <= after + timedelta(minutes=5)
        assert row.expires_at is not None
        assert before + timedelta(minutes=10) <= row.expires_at <= after + timedelta(minutes=10)
        assert before <= row.created_at <= after
        assert (row.result, row.value, row.progress) == (None, None, None)


def test_what_the_definition_says_is_the_default() -> None:
    made = configured.enqueue(3)
    assert (made.queue, made.priority, made.max_attempts, made.timeout, made.unique_key) == (
        "mail",
        4,
        None,
        None,
        "n3",
    )
    assert made.expires_at is not None
    made = configured.using(queue="x", priority=0, max_attempts=9, timeout=1, expires=None, unique_key=None).enqueue(3)
    assert (made.queue, made.priority, made.max_attempts, made.timeout, made.unique_key) == ("x", 0, 9, 1, None)
    assert Job.objects.get(pk=made.pk).expires_at is None


def test_the_settings_are_the_default_of_the_default(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"MAX_ATTEMPTS": 7, "TIMEOUT": 77}
    made = noop.enqueue()
    assert (made.max_attempts, made.timeout) == (7, 77.0)


def test_a_plain_enqueue_is_one_statement(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(1):
        noop.enqueue(1)


def test_times_come_from_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose clock is wrong does no harm."""
    monkeypatch.setattr(timezone, "now", lambda: datetime(2001, 1, 1, tzinfo=UTC))
    made = noop.using(delay=60).enqueue()
    monkeypatch.undo()
    assert abs((made.run_at - timezone.now()).total_seconds() - 60) < 30
    assert abs((made.created_at - timezone.now()).total_seconds()) < 30


@pytest.mark.parametrize("status", ["QUEUED", "RUNNING", "FAILED"])
def test_keep_returns_the_unfinished_job_that_is_there(status: str) -> None:
    held = EchoFactory(
        unique_key="k", args=["old"], **{"running" if status == "RUNNING" else "failed": status != "QUEUED"}
    )
    before = Job.objects.values().get()
    got = echo.using(unique_key="k").enqueue("new")
    assert (got.pk, got.created, got.status, got.args) == (held.pk, False, status, ["old"])
    assert Job.objects.values().get() == before


@pytest.mark.parametrize("trait", FINISHED)
@pytest.mark.parametrize("if_exists", ["keep", "replace", "raise"])
def test_a_finished_job_holds_no_unique_key(trait: str, if_exists: Any) -> None:
    old = EchoFactory(unique_key="k", **{trait: True})
    got = echo.using(unique_key="k", if_exists=if_exists).enqueue("new")
    assert (got.created, got.pk != old.pk) == (True, True)
    assert Job.objects.get(pk=old.pk).status == FINISHED[trait]


def test_raise_names_the_holder_and_leaves_the_transaction_usable() -> None:
    held = EchoFactory(unique_key="k")
    with transaction.atomic():
        with pytest.raises(
            AlreadyEnqueued, match=rf"probes.echo: job {held.pk} \(QUEUED\) holds the key 'k'"
        ) as caught:
            echo.using(unique_key="k", if_exists="raise").enqueue("new")
        noop.enqueue()
    assert caught.value.job.pk == held.pk
    assert Job.objects.count() == 2


@pytest.mark.parametrize("trait", ["queued", "failed"])
def test_replace_gives_a_waiting_job_the_new_call(trait: str) -> None:
    """N17: as if it were new, with all that the call says and nothing of the attempts of the call before."""
    values: dict[str, Any] = {} if trait == "queued" else {"failed": True, "attempts": 2, "reason": "deadline exceeded"}
    held = EchoFactory(
        unique_key="k", args=["old"], kwargs={"a": 1}, run_at=ago(-600), expires_at=ago(-900), losses=1, timeout=1,
        progress={"done": 1}, infrastructure_failures=2, priority=9, **values,
    )  # fmt: skip
    before = timezone.now()
    call = echo.using(unique_key="k", delay=60, queue="other", priority=-1, max_attempts=7, timeout=70)
    got = call.using(if_exists="replace").enqueue("new")
    now = Job.objects.get()
    assert now.fencing_token == held.fencing_token, "it is never reset"
    for row in (got, now):
        assert (row.pk, row.status, row.reason, row.attempts, row.args, row.kwargs) == (
            held.pk, "QUEUED", "", 0, ["new"], {},
        )  # fmt: skip
        assert (row.queue, row.priority, row.max_attempts, row.timeout) == ("other", -1, 7, 70)
        assert (row.losses, row.infrastructure_failures, row.first_started_at, row.progress) == (0, 0, None, None)
        assert timedelta(seconds=60) <= row.run_at - before <= timedelta(seconds=60) + (timezone.now() - before)
        assert row.expires_at is None, "when it expires belongs to the call"
    assert got.created is False


def test_a_debounced_job_that_expires_does_so_after_its_last_call() -> None:
    """Replaced again and again, it would otherwise expire before it may start, and vanish with its last call."""
    debounced = echo.using(unique_key="k", if_exists="replace", delay=30, expires=60)
    first = debounced.enqueue(1)
    fetch(
        "UPDATE django_reliable_jobs_job SET run_at = run_at - interval '50s', expires_at = expires_at - interval '50s'"
    )
    again = debounced.enqueue(2)
    assert again.pk == first.pk
    assert again.expires_at is not None
    assert again.expires_at - again.run_at == timedelta(seconds=30)


def test_replace_returns_a_running_job_unchanged() -> None:
    held = EchoFactory(running=True, unique_key="k", args=["old"])
    before = Job.objects.values().get()
    got = echo.using(unique_key="k", if_exists="replace").enqueue("new")
    assert (got.pk, got.created, got.status, got.args) == (held.pk, False, JobStatus.RUNNING, ["old"])
    assert Job.objects.values().get() == before


def test_replace_reaches_a_job_that_has_an_idempotency_key_too() -> None:
    held = EchoFactory(unique_key="k", idempotency_key="order-1", args=["old"])
    for options, key in (({}, "order-1"), ({"idempotency_key": "order-2"}, "order-2"), ({}, "order-2")):
        got = echo.using(unique_key="k", if_exists="replace", **options).enqueue("new")
        assert (got.pk, got.args, got.idempotency_key) == (held.pk, ["new"], key)
        Job.objects.update(args=["old"])


def test_a_replaced_job_is_checked_against_its_new_limit_only() -> None:
    """It had begun and so could not expire; the new call has not."""
    held = EchoFactory(failed=True, unique_key="k", expires_at=ago(60))
    echo.using(unique_key="k", if_exists="replace", expires=600).enqueue("new")
    assert expire("default", 10) == 0
    Job.objects.update(expires_at=ago(1))
    assert expire("default", 10) == 1
    assert Job.objects.get().pk == held.pk


def test_a_replaced_job_begins_without_the_checkpoint_of_the_call_before() -> None:
    """N17: it would go on in the middle of its new work. An attempt of the old call that is still about is refused."""
    held = EchoFactory(failed=True, unique_key="k")
    old = LeaseKey(held.pk, held.fencing_token)
    JobCheckpointFactory(job=held, fencing_token=old.token, value={"row": 500})
    echo.using(unique_key="k", if_exists="replace").enqueue("new")
    with pytest.raises(StaleToken), transaction.atomic():
        checkpoint.save("default", old, '{"row": 600}')
    assert checkpoint.load("default", LeaseKey(held.pk, next_token())) is None


@pytest.mark.parametrize("if_exists", ["keep", "replace", "raise"])
def test_an_expired_job_holds_no_unique_key(if_exists: Any) -> None:
    """No worker was there to cancel it; whoever enqueues again must not get a job that never runs."""
    late = EchoFactory(unique_key="k", expires_at=ago(1))
    got = echo.using(unique_key="k", if_exists=if_exists, expires=60).enqueue("new")
    assert (got.created, got.pk != late.pk) == (True, True)
    late.refresh_from_db()
    assert (late.status, late.reason) == ("CANCELLED", "expired")
    assert late.finished_at is not None
    [number] = echo.using(unique_key="k").enqueue_many([("other",)])
    assert number == got.pk


def test_an_expired_job_that_runs_holds_its_key() -> None:
    held = EchoFactory(running=True, unique_key="k", expires_at=ago(1))
    assert echo.using(unique_key="k").enqueue("new").pk == held.pk


@pytest.mark.parametrize("trait", ["queued", "running", "failed", *FINISHED])
@pytest.mark.parametrize("if_exists", ["keep", "replace"])
def test_an_idempotency_key_returns_the_first_job_whatever_its_status(trait: str, if_exists: Any) -> None:
    first = EchoFactory(
        idempotency_key="i", args=["old"], expires_at=ago(1), **({} if trait == "queued" else {trait: True})
    )
    before = Job.objects.values().get()
    got = echo.using(idempotency_key="i", unique_key="k", if_exists=if_exists).enqueue("new")
    assert (got.pk, got.created) == (first.pk, False)
    assert Job.objects.values().get() == before


def test_the_idempotency_key_is_asked_before_the_unique_key() -> None:
    first, other = EchoFactory(done=True, idempotency_key="i"), EchoFactory(unique_key="k")
    assert echo.using(idempotency_key="i", unique_key="k").enqueue(1).pk == first.pk
    assert echo.using(idempotency_key="j", unique_key="k").enqueue(1).pk == other.pk


def test_keys_may_be_made_of_the_arguments() -> None:
    keyed = echo.using(
        unique_key=lambda value: f"u{value}", idempotency_key=lambda value: None if value == 2 else f"i{value}"
    )
    one, two = keyed.enqueue(1), keyed.enqueue(value=2)
    assert (one.unique_key, one.idempotency_key) == ("u1", "i1")
    assert (two.unique_key, two.idempotency_key) == ("u2", None)


def test_unique_until_start_is_stored() -> None:
    assert noop.using(unique_key="k", unique_until="start").enqueue().unique_until_start is True
    assert Job.objects.get().unique_until_start is True


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "naive run_at": ({"run_at": datetime(2030, 1, 1)}, ValueError, "run_at is a naive datetime"),
    "naive expires": ({"expires": datetime(2030, 1, 1)}, ValueError, "expires is a naive datetime"),
    "run_at text": ({"run_at": "2030-01-01"}, TypeError, "run_at is a datetime"),
    "negative delay": ({"delay": -1}, ValueError, "delay"),
    "delay nan": ({"delay": float("nan")}, ValueError, "delay"),
    "delay of centuries": ({"delay": 1e12}, ValueError, "delay"),
    "delay of days text": ({"delay": "1d"}, TypeError, "delay"),
    "expires in centuries": ({"expires": 1e12}, ValueError, "expires"),
    "priority": ({"priority": 101}, ValueError, "priority"),
    "priority bool": ({"priority": True}, ValueError, "priority"),
    "queue": ({"queue": "a b"}, ValueError, "queue"),
    "queue nul": ({"queue": "a\0"}, ValueError, "queue"),
    "long queue": ({"queue": "q" * 101}, ValueError, "queue"),
    "max_attempts": ({"max_attempts": 0}, ValueError, "max_attempts"),
    "huge max_attempts": ({"max_attempts": 2**31}, ValueError, "max_attempts"),
    "timeout": ({"timeout": -1}, ValueError, "timeout"),
    "if_exists": ({"if_exists": "ignore"}, ValueError, "if_exists"),
    "unique_until": ({"unique_until": "never"}, ValueError, "unique_until"),
    "empty key": ({"unique_key": ""}, ValueError, "unique_key"),
    "long key": ({"unique_key": "k" * 256}, ValueError, "unique_key"),
    "key with nul": ({"unique_key": "a\0b"}, ValueError, "unique_key"),
    "key with half a character": ({"idempotency_key": "\ud800"}, ValueError, "idempotency_key"),
    "number as key": ({"idempotency_key": 7}, ValueError, "idempotency_key"),
    "concurrency_key": ({"concurrency_key": "k"}, ValueError, "concurrency_key"),
}


@pytest.mark.parametrize(("options", "kind", "message"), WRONG.values(), ids=WRONG)
def test_wrong_options_are_refused_before_anything_is_sent(
    options: Any, kind: type[Exception], message: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with transaction.atomic():
        with django_assert_num_queries(0), pytest.raises(kind, match=message):
            noop.using(**options).enqueue()
        with django_assert_num_queries(0), pytest.raises(kind, match=message):
            noop.using(**options).enqueue_many([(1,)])
        noop.enqueue()
    assert Job.objects.count() == 1


def test_options_that_do_not_exist_or_exclude_each_other_are_refused() -> None:
    with pytest.raises(TypeError, match="unexpected option 'countdown'"):
        noop.using(countdown=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="run_at or delay, not both"):
        noop.using(run_at=timezone.now(), delay=3)


def test_djangos_own_names_are_taken() -> None:
    at = timezone.now() + timedelta(hours=1)
    made = noop.using(queue_name="mail", run_after=at).enqueue()
    assert (made.queue, made.run_at) == ("mail", at)
    assert noop.using(run_after=timedelta(hours=2)).enqueue().run_at > at
    with pytest.raises(TypeError, match="queue or queue_name, not both"):
        noop.using(queue="a", queue_name="b")


def test_the_longest_keys_and_names_fit() -> None:
    key = "\U0001f600" * 255
    made = noop.using(unique_key=key, idempotency_key=key, queue="\U0001f600" * 100).enqueue()
    assert noop.using(unique_key=key).enqueue().pk == made.pk


def test_a_naive_time_is_local_time_without_use_tz(settings: Any) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Ho_Chi_Minh"
    made = noop.using(run_at=datetime(2030, 1, 1, 12), expires=datetime(2030, 1, 2)).enqueue()
    assert fetch("SELECT run_at AT TIME ZONE 'UTC', expires_at AT TIME ZONE 'UTC' FROM django_reliable_jobs_job") == [
        (datetime(2030, 1, 1, 5), datetime(2030, 1, 1, 17))
    ]
    assert made.run_at == Job.objects.get().run_at == datetime(2030, 1, 1, 12)
