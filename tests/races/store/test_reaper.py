"""L06: a job is taken from its owner only if it is still lost at the moment of writing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_reliable_jobs import control
from django_reliable_jobs.models import Job, JobAttempt, JobStatus
from django_reliable_jobs.store.exchange import ClaimRequest, RowState, Settlement, exchange, reread
from django_reliable_jobs.store.heartbeat import Held, heartbeat
from django_reliable_jobs.store.prune import prune
from django_reliable_jobs.store.reap import expire, reap
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.backoff import Backoff
from tests.support.factories import JobFactory, ago, lease_of
from tests.support.sessions import Session, fetch, pausing


@pytest.fixture
def job() -> Job:
    return JobFactory(running=True, locked_until=ago(1))


def test_a_job_that_finished_after_the_reaper_saw_it_stays_done(sessions: Callable[[], Session], job: Job) -> None:
    reaper, worker = sessions(), sessions()
    with pausing("reap") as go_on:
        answer = reaper.start(reap, "default", Backoff(), 10)
        reaper.waits_for(answer)
        got = worker.do(
            exchange, "default", job.locked_by, 30, [Settlement(lease_of(job), outcome.done("7"))], ClaimRequest()
        )
        assert got.settled == {lease_of(job).key}
        go_on()
        assert answer.result(60) == []
    now = Job.objects.get()
    assert (now.status, now.value, now.losses, now.fencing_token) == ("DONE", 7, 0, job.fencing_token)
    assert not JobAttempt.objects.exists()


def test_a_job_whose_heartbeat_came_after_the_reaper_saw_it_stays_running(
    sessions: Callable[[], Session], job: Job
) -> None:
    reaper, worker = sessions(), sessions()
    with pausing("reap") as go_on:
        answer = reaper.start(reap, "default", Backoff(), 10)
        reaper.waits_for(answer)
        assert worker.do(heartbeat, "default", 30, [Held(lease_of(job).key)])
        go_on()
        assert answer.result(60) == []
    assert Job.objects.get().status == "RUNNING"


def test_of_two_reapers_one_counts_the_loss(sessions: Callable[[], Session], job: Job) -> None:
    slow, fast = sessions(), sessions()
    with pausing("reap") as go_on:
        answer = slow.start(reap, "default", Backoff(), 10)
        slow.waits_for(answer)
        # The pause is shared, so the rival's own statement is written out.
        fast.sql(
            "UPDATE django_reliable_jobs_job SET status = 'QUEUED', losses = 1, locked_until = NULL, locked_by = NULL"
        )
        go_on()
        assert answer.result(60) == []
    assert Job.objects.get().losses == 1


def test_a_worker_that_settles_while_the_reaper_writes_learns_that_it_lost(
    sessions: Callable[[], Session], job: Job
) -> None:
    """The other way round: the reaper has locked the row first. The outcome is busy, then lost, and changes nothing."""
    reaper, worker = sessions(), sessions()
    lease = lease_of(job)
    reaper.begin()
    assert len(reaper.do(reap, "default", Backoff(), 10)) == 1
    assert (
        worker.do(exchange, "default", job.locked_by, 30, [Settlement(lease, outcome.DONE)], ClaimRequest()).settled
        == set()
    )
    assert worker.do(reread, "default", [lease.key]) == {lease.key: RowState.BUSY}
    reaper.commit()
    assert (
        worker.do(exchange, "default", job.locked_by, 30, [Settlement(lease, outcome.DONE)], ClaimRequest()).settled
        == set()
    )
    assert worker.do(reread, "default", [lease.key]) == {lease.key: RowState.LOST}
    assert Job.objects.get().status == "QUEUED"


def test_a_cancel_request_that_comes_before_the_reaper_writes_is_minded(
    sessions: Callable[[], Session], job: Job
) -> None:
    reaper, admin = sessions(), sessions()
    with pausing("reap") as go_on:
        answer = reaper.start(reap, "default", Backoff(), 10)
        reaper.waits_for(answer)
        admin.do(control.cancel, job)
        go_on()
        assert [got.status for got in answer.result(60)] == ["CANCELLED"]


def test_a_cancel_request_that_comes_before_the_settle_writes_is_minded(
    sessions: Callable[[], Session], job: Job
) -> None:
    worker, admin = sessions(), sessions()
    with pausing("exchange") as go_on:
        answer = worker.start(
            exchange, "default", job.locked_by, 30, [Settlement(lease_of(job), outcome.snoozed(5))], ClaimRequest()
        )
        worker.waits_for(answer)
        admin.do(control.cancel, job)
        go_on()
        assert answer.result(60).settled
    assert Job.objects.get().status == "CANCELLED"


def test_a_cancel_meets_the_status_of_the_moment(sessions: Callable[[], Session]) -> None:
    """It saw the job waiting; by the time it writes, a worker runs it: the worker is asked, the row is not cancelled."""
    job = JobFactory()
    admin = sessions()
    with pausing("cancel", r"AND job\.status\b") as go_on:
        answer = admin.start(control.cancel, job)
        admin.waits_for(answer)
        lease = JobFactory.build(running=True)
        fetch(
            "UPDATE django_reliable_jobs_job SET status = 'RUNNING', locked_by = %s, locked_until = now() + interval '1h',"
            " fencing_token = 5",
            [lease.locked_by],
        )
        go_on()
        assert answer.result(60).changed == [job.pk]
    now = Job.objects.get()
    assert (now.status, now.cancel_requested_at is None, now.finished_at) == ("RUNNING", False, None)


def test_a_job_that_started_in_time_is_not_expired(sessions: Callable[[], Session]) -> None:
    JobFactory(expires_at=ago(1))
    maintenance = sessions()
    with pausing("expire") as go_on:
        answer = maintenance.start(expire, "default", 10)
        maintenance.waits_for(answer)
        fetch("UPDATE django_reliable_jobs_job SET expires_at = NULL")
        go_on()
        assert answer.result(60) == 0


@pytest.mark.parametrize("status", [JobStatus.DEAD, JobStatus.CANCELLED])
def test_a_job_that_is_retried_after_prune_saw_it_stays(sessions: Callable[[], Session], status: JobStatus) -> None:
    job = JobFactory(**{status.value.lower(): True})
    maintenance, admin = sessions(), sessions()
    with pausing("prune") as go_on:
        answer = maintenance.start(prune, "default", status, 1, 10)
        maintenance.waits_for(answer)
        assert admin.do(control.retry, job).changed == [job.pk]
        go_on()
        assert answer.result(60) == 0
    assert Job.objects.get().status == "QUEUED"


def test_a_retry_that_waits_for_prune_finds_nothing(sessions: Callable[[], Session]) -> None:
    job = JobFactory(dead=True)
    maintenance, admin = sessions(), sessions()
    maintenance.begin()
    assert maintenance.do(prune, "default", JobStatus.DEAD, 1, 10) == 1
    answer = admin.start(control.retry, job)
    admin.waits_for(answer)
    maintenance.commit()
    assert answer.result(60).skipped == {job.pk: "there is no such job"}
