"""Whatever a row holds, it is that row's trouble: nobody who reads the others is stopped by it (P01, N03)."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models import Max
from django.test import override_settings

from django_reliable_jobs import conf
from django_reliable_jobs.models import CronRun, Job, JobAttempt, JobStatus, Worker
from django_reliable_jobs.operations.overview.figures import overview
from django_reliable_jobs.store import reap, worker_row
from django_reliable_jobs.store.exchange import ClaimRequest, Exchanged, Settlement, Source, exchange, reread
from django_reliable_jobs.store.heartbeat import Held, heartbeat
from django_reliable_jobs.store.prune import prune, prune_runs
from django_reliable_jobs.store.queues_with_work import discover
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.outcome import ErrorRecord
from tests.support.factories import OWNER, JobAttemptFactory, JobFactory, WorkerFactory, ago, lease_of
from tests.support.poison import CHANGES, COLUMNS, MOMENTS, drop_the_constraint, poison

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _anything_goes(db: None) -> None:
    drop_the_constraint()


def claim_all(worker: object = None) -> Exchanged:
    """As an engine does that has just looked."""
    pairs = [Source(work.queue, work.priority, work.since) for work in discover("default") if work.due_in <= 0]
    return exchange("default", OWNER, 30.0, [], ClaimRequest(free=50, ahead=10, pairs=pairs))


@pytest.mark.parametrize("change", CHANGES)
def test_a_waiting_row_does_not_keep_others_from_being_found_and_claimed(change: str) -> None:
    before, bad, after = JobFactory(priority=1), JobFactory(), JobFactory(priority=-1)
    beside = JobFactory(), JobFactory(queue="other")
    poison(change, bad.pk)
    claimed = {lease.job_id: lease for lease in claim_all().leases}
    assert claimed.keys() >= {before.pk, after.pk, *(job.pk for job in beside)}
    if bad.pk in claimed:
        lease = claimed[bad.pk]
        assert lease.timeout is None or 0 <= lease.timeout < 1e9
        assert lease.run_at.tzinfo is UTC
        offers = [Settlement(lease, outcome.failed(5.0, ErrorRecord("E", "e", ""), last_attempt=False))]
        others = [Settlement(lease, outcome.RELEASED) for key, lease in claimed.items() if key != bad.pk]
        settled = exchange("default", OWNER, 30.0, offers + others, ClaimRequest()).settled
        assert settled == {lease.key for lease in claimed.values()}


@pytest.mark.parametrize("value", MOMENTS[:3])
def test_a_row_from_before_all_time_is_due_and_gets_its_turn(value: str) -> None:
    """By the exchange and by the small statement, and after its claim those behind it."""
    jobs = [JobFactory(), JobFactory(), JobFactory()]
    for job in jobs[:2]:
        poison(f"run_at = '{value}'", job.pk)
    [work] = discover("default")
    since, job_id, got = work.since, 0, []
    for _ in jobs:
        pair = Source("default", 0, since, None, job_id)
        [lease] = exchange("default", uuid4(), 30.0, [], ClaimRequest(1, 0, [pair], light=True)).leases
        got.append(lease.job_id)
        since, job_id = lease.run_at, lease.job_id
    assert got == [job.pk for job in jobs]


@pytest.mark.parametrize("change", CHANGES)
def test_a_running_row_does_not_keep_others_from_being_reaped_extended_or_handed_back(change: str) -> None:
    dead, me = uuid4(), uuid4()
    lost = JobFactory(running=True, locked_by=dead, locked_until=ago(5))
    held = JobFactory(running=True, locked_by=me)
    unheld = JobFactory(running=True, locked_by=me)
    bad = JobFactory(running=True, locked_by=dead, locked_until=ago(5))
    poison(change, bad.pk)
    pairs = [lease_of(job).key for job in (held, bad)]
    assert len(heartbeat("default", 30.0, [Held(key) for key in pairs])) == 2
    poison(change, bad.pk)
    assert len(reread("default", pairs)) == 2
    reaped = {job.id for job in reap.reap("default", conf.current().backoff, 100)}
    assert lost.pk in reaped
    poison(change, bad.pk)
    Job.objects.filter(pk=bad.pk).update(status=JobStatus.RUNNING, locked_by=me)
    Job.objects.filter(pk=bad.pk, locked_until=None).update(locked_until=ago(5))
    assert unheld.pk in reap.release_unheld("default", me, [held.fencing_token])


@pytest.mark.parametrize("value", MOMENTS)
def test_a_lease_without_an_end_ends(value: str) -> None:
    job = JobFactory(running=True)
    poison(f"locked_until = '{value}'", job.pk)
    for _ in range(2):
        if reap.reap("default", conf.current().backoff, 100):
            break
        job.refresh_from_db()
        assert ago(0) < job.locked_until < ago(-600), "it has an end now, and its owner a lease to extend it"
        Job.objects.filter(pk=job.pk).update(locked_until=ago(1))
    job.refresh_from_db()
    assert (job.status, job.losses) == (JobStatus.QUEUED, 1)


@pytest.mark.parametrize("change", [change for change in CHANGES if "_key" not in change])
def test_neither_expiry_nor_retention_stops_at_it(change: str) -> None:
    late, bad_late = JobFactory(expires_at=ago(5)), JobFactory(expires_at=ago(5))
    old, bad_old = JobFactory(done=True, finished_at=ago(1e6)), JobFactory(done=True, finished_at=ago(1e6))
    CronRun.objects.create(name="x", scheduled_for=ago(5), outcome="enqueued", job_id=bad_old.pk, fired_at=ago(1e6))
    JobAttemptFactory(job=bad_old)
    for job in (bad_late, bad_old):
        poison(change, job.pk)
    reap.expire("default", 100)
    prune("default", JobStatus.DONE, 60, 100)
    prune_runs("default", 60, 100)
    late.refresh_from_db()
    assert late.status == JobStatus.CANCELLED
    assert not Job.objects.filter(pk=old.pk).exists()


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("value", MOMENTS)
def test_the_model_reads_the_nearest_moment_that_there_is(column: str, value: str) -> None:
    job = JobFactory(running=True)
    poison(f"{column} = '{value}'", job.pk)
    expected = {1: datetime.min, 9999: datetime.max}
    for zone in ("UTC", "Pacific/Kiritimati", "Etc/GMT+12"):
        with override_settings(TIME_ZONE=zone):
            read = getattr(Job.objects.get(pk=job.pk), column)
            assert abs(read.replace(tzinfo=None) - expected[read.year]).days <= 2
            assert Job.objects.values_list(column, flat=True).get() == read == Job.objects.aggregate(m=Max(column))["m"]


def test_a_worker_row_does_not_keep_others_from_counting_free_slots() -> None:
    WorkerFactory(slots=8, busy=2)
    mad = WorkerFactory(slots=2**31 - 1, busy=-(2**31))
    eternal = WorkerFactory(slots=5)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_reliable_jobs_worker SET last_seen = 'infinity' WHERE id = %s", [eternal.pk])
    me = worker_row.WorkerState(uuid4(), "host", 1, "0", "", 8)
    assert worker_row.seen("default", me, 60).free_elsewhere >= 6
    Worker.objects.filter(pk=mad.pk).delete()
    assert worker_row.seen("default", me, 60).free_elsewhere == 6, "one that is seen in all eternity is not seen now"
    assert len(overview().workers) == 3


@pytest.mark.parametrize("status", JobStatus.values)
@pytest.mark.parametrize("column", COLUMNS)
def test_the_overview_is_shown(column: str, status: str) -> None:
    for value in MOMENTS:
        job = JobFactory(**({} if status == "QUEUED" else {status.lower(): True}))
        JobAttemptFactory(job=job)
        poison(f"{column} = '{value}'", job.pk)
    with connection.cursor() as cursor:
        for n, attempt in enumerate(JobAttempt.objects.order_by("pk")):
            moment = MOMENTS[n % len(MOMENTS)]
            cursor.execute(
                f"UPDATE django_reliable_jobs_jobattempt SET finished_at = '{moment}' WHERE id = {attempt.pk}"
            )
    overview()
