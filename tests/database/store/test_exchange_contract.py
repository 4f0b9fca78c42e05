"""What an exchange records, in both implementations: the one statement and the portable reference."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from django_reliable_jobs.models import Job, JobAttempt, JobStatus
from django_reliable_jobs.store.exchange import ClaimRequest, RowState, Settlement, Source, reread
from django_reliable_jobs.store.reap import reap
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.backoff import Backoff
from django_reliable_jobs.values.lease import LeaseKey
from django_reliable_jobs.values.outcome import ErrorRecord, Outcome
from tests.database.conftest import Exchange
from tests.support.factories import JobFactory, ago, lease_of
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db

ERROR = ErrorRecord("shop.Trouble", "no stock", "Traceback ...")
FAILED_ONCE = outcome.failed(60.0, ERROR, last_attempt=False, reason="deadline exceeded")

OUTCOMES: dict[str, tuple[Outcome, dict[str, Any]]] = {
    "done": (outcome.done('{"a": 1}'), {"status": "DONE", "result": {"a": 1}}),
    "done without a result": (
        outcome.done(reason="result not stored"),
        {"status": "DONE", "reason": "result not stored"},
    ),
    "failed": (FAILED_ONCE, {"status": "FAILED", "reason": "deadline exceeded", "delay": 60.0}),
    "dead": (outcome.dead("permanent failure", ERROR), {"status": "DEAD", "reason": "permanent failure"}),
    "cancelled": (outcome.cancelled("cancel requested", ERROR), {"status": "CANCELLED", "reason": "cancel requested"}),
    "released": (outcome.RELEASED, {"status": "QUEUED", "attempts": 2}),
    "handed back unbegun": (outcome.UNBEGUN, {"status": "QUEUED", "attempts": 2}),
    "expired": (outcome.EXPIRED, {"status": "CANCELLED", "reason": "expired", "attempts": 2}),
    "snoozed": (outcome.snoozed(90.0), {"status": "QUEUED", "attempts": 2, "delay": 90.0}),
    "unknown": (outcome.unknown_job(), {"status": "QUEUED", "reason": "unknown job", "attempts": 2}),
    "unknown, later": (
        outcome.unknown_job(15.0),
        {"status": "QUEUED", "reason": "unknown job", "attempts": 2, "delay": 15.0},
    ),
}


def running(**values: Any) -> Job:
    return JobFactory(running=True, **{"attempts": 3, "progress": {"done": 1}} | values)


@pytest.mark.parametrize(("given", "expected"), OUTCOMES.values(), ids=OUTCOMES)
def test_each_outcome_is_recorded(exchange: Exchange, given: Outcome, expected: dict[str, Any]) -> None:
    job = running()
    before = timezone.now()
    got = exchange([Settlement(lease_of(job), given)], worker=job.locked_by)
    after = timezone.now()

    assert got.settled == {LeaseKey(job.pk, job.fencing_token)}
    now = Job.objects.get(pk=job.pk)
    finished = now.status in ("DONE", "DEAD", "CANCELLED")
    assert now.status == expected["status"]
    assert now.reason == expected.get("reason", "")
    assert now.attempts == expected.get("attempts", 3)
    assert now.result == expected.get("result")
    assert now.progress == {"done": 1}
    assert now.fencing_token == job.fencing_token, "the token stays after the settle"
    assert (now.locked_by, now.locked_until) == (job.locked_by if finished else None, None)
    assert now.started_at == job.started_at
    assert now.first_started_at == (None if given.unbegun else job.started_at)
    assert now.unknown_since is None, "only older versions write it"
    assert (now.finished_at is not None) == finished
    if finished:
        assert now.finished_at is not None
        assert before <= now.finished_at <= after
    if "delay" in expected:
        delay = timedelta(seconds=expected["delay"])
        assert before + delay <= now.run_at <= after + delay
    else:
        assert now.run_at == job.run_at


@pytest.mark.parametrize(("given", "expected"), OUTCOMES.values(), ids=OUTCOMES)
def test_an_error_becomes_an_attempt(exchange: Exchange, given: Outcome, expected: dict[str, Any]) -> None:
    job = running()
    exchange([Settlement(lease_of(job), given)])
    attempts = list(JobAttempt.objects.filter(job=job))
    if given.error is None:
        assert attempts == []
        return
    [attempt] = attempts
    assert (attempt.fencing_token, attempt.attempt, attempt.worker) == (job.fencing_token, 3, exchange.worker)
    assert (attempt.status, attempt.reason) == (expected["status"], expected.get("reason", ""))
    assert (attempt.error_kind, attempt.error_message, attempt.traceback) == (
        "shop.Trouble",
        "no stock",
        "Traceback ...",
    )
    assert attempt.started_at == job.started_at
    assert abs(attempt.finished_at - timezone.now()) < timedelta(seconds=30)


@pytest.mark.parametrize("given", [given for given, _ in OUTCOMES.values()], ids=OUTCOMES)
def test_a_cancel_request_turns_anything_but_done_into_cancelled(exchange: Exchange, given: Outcome) -> None:
    job = running(cancel_requested_at=ago(1))
    exchange([Settlement(lease_of(job), given)])
    now = Job.objects.get(pk=job.pk)
    if given.status == JobStatus.DONE:
        assert (now.status, now.reason) == ("DONE", given.reason)
    else:
        assert (now.status, now.reason) == ("CANCELLED", "cancel requested")
        assert all(
            a.status == "CANCELLED" and a.reason == "cancel requested" for a in JobAttempt.objects.filter(job=job)
        )
    assert now.finished_at is not None
    assert now.locked_by == job.locked_by


def test_an_older_version_counts_anew_for_a_job_that_was_put_back_here(exchange: Exchange) -> None:
    """It makes DEAD what it meets an hour after `unknown_since`, though a worker may know the name that is only busy."""
    job = running(unknown_since=ago(600))
    exchange([Settlement(lease_of(job), outcome.unknown_job())])
    assert Job.objects.get(pk=job.pk).unknown_since is None


def test_the_last_progress_is_stored(exchange: Exchange) -> None:
    job = running()
    exchange([Settlement(lease_of(job), outcome.DONE, '{"done": 7}')])
    assert Job.objects.get(pk=job.pk).progress == {"done": 7}


def test_a_wrong_token_writes_nothing(exchange: Exchange) -> None:
    job = running()
    before = Job.objects.filter(pk=job.pk).values().get()
    older, newer = lease_of(job, token=job.fencing_token - 1), lease_of(job, token=job.fencing_token + 1)
    got = exchange([Settlement(older, FAILED_ONCE), Settlement(newer, outcome.DONE)], worker=job.locked_by)
    assert got.settled == set()
    assert Job.objects.filter(pk=job.pk).values().get() == before
    assert not JobAttempt.objects.exists()
    assert set(reread("default", [older.key, newer.key]).values()) == {RowState.LOST}


@pytest.mark.parametrize("status", [status for status in JobStatus if status != JobStatus.RUNNING])
def test_a_job_that_is_not_running_is_not_settled(exchange: Exchange, status: JobStatus) -> None:
    job = JobFactory(status=status, fencing_token=1_000_000)
    assert exchange([Settlement(lease_of(job), FAILED_ONCE)]).settled == set()
    assert Job.objects.get(pk=job.pk).status == status
    assert not JobAttempt.objects.exists()


def test_of_two_attempts_of_one_job_only_the_latest_is_recorded(exchange: Exchange) -> None:
    """A worker that stalled can claim its own lost job again, and then holds two leases of it."""
    for _ in range(4):  # whichever of the two comes first
        job = running()
        stale = Settlement(
            lease_of(job, token=job.fencing_token - 1, attempt=2), outcome.dead("stale", ERROR), '{"done": -1}'
        )
        offers = [stale, Settlement(lease_of(job), FAILED_ONCE, '{"done": 2}')]
        got = exchange(offers if job.pk % 2 else offers[::-1])
        now = Job.objects.get(pk=job.pk)
        assert (now.status, now.reason, now.progress) == ("FAILED", "deadline exceeded", {"done": 2})
        assert got.settled == {LeaseKey(job.pk, job.fencing_token)}, "the stale offer was not written"
        assert [a.attempt for a in JobAttempt.objects.filter(job=job)] == [3]


@pytest.mark.django_db(transaction=True)
def test_a_locked_row_is_busy_and_settled_later(exchange: Exchange) -> None:
    held, free = running(), running()
    offers = [Settlement(lease_of(held), outcome.DONE), Settlement(lease_of(free), outcome.DONE)]
    with Session() as somebody:
        somebody.begin()
        somebody.sql("SELECT 1 FROM django_reliable_jobs_job WHERE id = %s FOR UPDATE", [held.pk])
        assert exchange(offers).settled == {LeaseKey(free.pk, free.fencing_token)}
        keys = [offer.lease.key for offer in offers]
        assert reread("default", keys) == {keys[0]: RowState.BUSY, keys[1]: RowState.RECORDED}
        somebody.rollback()
        assert exchange(offers[:1]).settled == {LeaseKey(held.pk, held.fencing_token)}
    assert Job.objects.get(pk=held.pk).status == "DONE"


def test_what_is_recorded_already_changes_nothing_when_it_is_offered_again(exchange: Exchange) -> None:
    """The answer to a commit can be lost: the worker offers the outcome again."""
    jobs = {name: running() for name in OUTCOMES}
    offers = [Settlement(lease_of(job), OUTCOMES[name][0]) for name, job in jobs.items()]
    assert len(exchange(offers).settled) == len(offers)
    before = list(Job.objects.order_by("id").values())
    assert exchange(offers).settled == set()
    assert list(Job.objects.order_by("id").values()) == before
    assert set(reread("default", [offer.lease.key for offer in offers]).values()) == {RowState.RECORDED}


def test_what_was_lost_is_told_from_what_is_recorded(exchange: Exchange) -> None:
    """A reaped row keeps the token of the lost attempt until it is claimed again; its outcome is not in the row."""
    queued, used_up = running(locked_until=ago(1)), running(locked_until=ago(1), max_attempts=3)
    asked, settled, pruned = running(locked_until=ago(1), cancel_requested_at=ago(1)), running(), running()
    exchange([Settlement(lease_of(settled), outcome.DONE)])
    Job.objects.filter(pk=pruned.pk).delete()
    reap("default", Backoff(), 10)

    leases = {name: lease_of(job) for name, job in locals().items() if isinstance(job, Job)}
    assert exchange([Settlement(lease, outcome.DONE) for lease in leases.values()]).settled == set()
    found = reread("default", [lease.key for lease in leases.values()])
    assert {name: found[lease.key] for name, lease in leases.items()} == {
        "queued": RowState.LOST, "used_up": RowState.LOST, "asked": RowState.LOST,
        "settled": RowState.RECORDED, "pruned": RowState.LOST,
    }  # fmt: skip


def test_what_is_put_back_is_not_claimed_in_the_same_exchange(exchange: Exchange) -> None:
    back, other = running(run_at=ago(900)), JobFactory()
    got = exchange([Settlement(lease_of(back), outcome.RELEASED)], ClaimRequest(8, pairs=[Source("default", 0)]))
    assert [lease.job_id for lease in got.leases] == [other.pk]
    assert exchange.claim() == [back.pk]


def test_nothing_is_asked_and_nothing_happens(exchange: Exchange) -> None:
    JobFactory()
    got = exchange()
    assert (got.settled, got.leases, got.candidates) == (set(), [], 0)


def test_the_worker_of_an_attempt_is_who_offers_it(exchange: Exchange) -> None:
    worker = uuid4()
    job = running(locked_by=worker)
    exchange([Settlement(lease_of(job), FAILED_ONCE)], worker=worker)
    assert JobAttempt.objects.get().worker == worker
