"""Leases: heartbeat, reap, release, expire, and the settle of an atomic job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.utils import timezone

from django_reliable_jobs.models import Job, JobAttempt
from django_reliable_jobs.store.exchange import Settlement
from django_reliable_jobs.store.heartbeat import Held, heartbeat
from django_reliable_jobs.store.queues_with_work import discover
from django_reliable_jobs.store.reap import expire, reap, release_unheld
from django_reliable_jobs.store.settle_atomic import settle
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.backoff import Backoff
from django_reliable_jobs.values.lease import LeaseKey
from tests.database.store.test_exchange_contract import OUTCOMES
from tests.support.factories import JobFactory, QueueStateFactory, ago, lease_of, next_token
from tests.support.sessions import Session, fetch, impatient

pytestmark = pytest.mark.django_db

BACKOFF = Backoff(base=100, factor=2, cap=1000)


def lost(**values: Any) -> Job:
    return JobFactory(running=True, **{"locked_until": ago(1)} | values)


def test_a_heartbeat_extends_what_the_worker_holds_and_nothing_else() -> None:
    held, other = JobFactory.create_batch(2, running=True)
    expired, done = lost(), JobFactory(done=True)
    keys = [lease_of(job).key for job in (held, expired, done)]
    wrong = LeaseKey(other.pk, other.fencing_token - 1)
    before = timezone.now()
    got = heartbeat("default", 30, [Held(key) for key in (*keys, wrong)])
    assert got == {keys[0]: False, keys[1]: False}, "an expired lease that nobody has reaped may still be extended"
    for job in (held, expired):
        until = Job.objects.get(pk=job.pk).locked_until
        assert until is not None
        assert before + timedelta(seconds=30) <= until <= timezone.now() + timedelta(seconds=30)
    assert Job.objects.get(pk=other.pk).locked_until == other.locked_until
    assert heartbeat("default", 30, []) == {}


def test_a_heartbeat_carries_progress_and_brings_cancel_requests() -> None:
    job = JobFactory(running=True, cancel_requested_at=ago(1), progress={"done": 1})
    key = lease_of(job).key
    assert heartbeat("default", 30, [Held(key)]) == {key: True}
    assert Job.objects.get().progress == {"done": 1}
    heartbeat("default", 30, [Held(key, '{"done": 2}')])
    assert Job.objects.get().progress == {"done": 2}


def test_the_progress_of_a_lost_attempt_of_the_same_job_is_not_stored() -> None:
    for _ in range(4):
        job = JobFactory(running=True)
        stale, current = LeaseKey(job.pk, job.fencing_token - 1), lease_of(job).key
        held = [Held(stale, '{"done": -1}'), Held(current, '{"done": 2}')]
        assert heartbeat("default", 30, held if job.pk % 2 else held[::-1]) == {current: False}
        assert Job.objects.get(pk=job.pk).progress == {"done": 2}


@pytest.mark.django_db(transaction=True)
def test_a_heartbeat_that_waited_does_not_write_an_expired_lease() -> None:
    job = JobFactory(running=True)
    with Session() as migration, Session() as worker:
        migration.begin()
        migration.sql("LOCK TABLE django_reliable_jobs_job IN ACCESS EXCLUSIVE MODE")
        answer = worker.start(heartbeat, "default", 5, [Held(lease_of(job).key)])
        worker.waits_for(answer)
        migration.sql("SELECT pg_sleep(0.3)")
        released_at = migration.sql("SELECT clock_timestamp()")[0][0]
        migration.commit()
        assert answer.result(60)
    until = Job.objects.get().locked_until
    assert until is not None
    assert until >= released_at + timedelta(seconds=5)


@pytest.mark.django_db(transaction=True)
def test_a_row_that_somebody_holds_blocks_nobody_elses_lease() -> None:
    jobs = JobFactory.create_batch(3, running=True)
    keys = [lease_of(job).key for job in jobs]
    with Session() as somebody:
        somebody.begin()
        somebody.sql("SELECT 1 FROM django_reliable_jobs_job WHERE id = %s FOR UPDATE", [jobs[1].pk])
        impatient()
        assert set(heartbeat("default", 30, [Held(key) for key in keys])) == {keys[0], keys[2]}


@pytest.mark.parametrize("losses", [0, 1, 2, 9])
def test_a_lost_job_is_queued_again_with_backoff_from_the_second_loss_on(losses: int) -> None:
    job = lost(attempts=2, losses=losses, max_attempts=None, unique_key="k", progress={"done": 1})
    before = timezone.now()
    [got] = reap("default", BACKOFF, 10)
    assert (got.id, got.status, got.attempts, got.worker, got.queued) == (job.pk, "QUEUED", 2, job.locked_by, True)
    now = Job.objects.get()
    assert (now.status, now.reason, now.losses, now.attempts) == ("QUEUED", "lost", losses + 1, 2)
    assert (now.locked_by, now.locked_until, now.finished_at) == (None, None, None)
    assert (now.fencing_token, now.unique_key, now.progress) == (job.fencing_token, "k", {"done": 1})
    if losses == 0:
        assert now.run_at == job.run_at
    else:
        delay = (now.run_at - before).total_seconds()
        whole = min(1000, 100 * 2 ** (losses - 1))
        assert whole / 2 <= delay <= whole + 60
    [attempt] = JobAttempt.objects.all()
    assert (attempt.job_id, attempt.fencing_token, attempt.attempt) == (job.pk, job.fencing_token, 2)
    assert (attempt.status, attempt.reason, attempt.error_kind) == ("QUEUED", "lost", "WorkerLost")
    assert (attempt.worker, attempt.started_at) == (job.locked_by, job.started_at)


@pytest.mark.parametrize(
    "backoff",
    [
        Backoff(base=0, factor=1e300, cap=1),
        Backoff(base=1, factor=1e300, cap=3e8),
        Backoff(base=1e-300, factor=2, cap=3e8),
        Backoff(base=1, factor=1.0000001, cap=3e8),
        Backoff(base=60, factor=1, cap=60),
    ],
)
def test_no_backoff_overflows(backoff: Backoff) -> None:
    """FR-P08: one job with many losses must not stop the reaping of all."""
    for losses in (1, 2, 70, 2**31 - 2):
        lost(losses=losses, max_attempts=None)
    before = timezone.now()
    assert len(reap("default", backoff, 10)) == 4
    assert all(job.run_at <= before + timedelta(seconds=backoff.cap + 60) for job in Job.objects.all())


def test_a_lost_last_attempt_is_dead() -> None:
    job = lost(attempts=5, max_attempts=5)
    [got] = reap("default", BACKOFF, 10)
    assert (got.status, got.queued) == ("DEAD", False)
    now = Job.objects.get()
    assert (now.status, now.reason, now.losses, now.locked_by) == ("DEAD", "lost", 1, job.locked_by)
    assert now.finished_at is not None


def test_only_expired_leases_are_reaped_unless_the_worker_is_known_to_be_dead() -> None:
    alive, dead = JobFactory(running=True), JobFactory(running=True, locked_by=uuid4())
    JobFactory(done=True), JobFactory()
    assert reap("default", BACKOFF, 10) == []
    expired = lost()
    assert [got.id for got in reap("default", BACKOFF, 10, [dead.locked_by], reach=0)] == [dead.pk]
    assert Job.objects.get(pk=expired.pk).status == "RUNNING"
    assert [got.id for got in reap("default", BACKOFF, 10)] == [expired.pk]
    assert Job.objects.get(pk=alive.pk).status == "RUNNING"


def test_what_ran_out_before_its_reach_is_left_to_others() -> None:
    """A worker that is back after an outage leaves those alone whose owners had no time to extend them."""
    old, young = lost(), lost()
    Job.objects.filter(pk=old.pk).update(locked_until=ago(10))
    Job.objects.filter(pk=young.pk).update(locked_until=ago(3))
    assert [got.id for got in reap("default", BACKOFF, 10, reach=6)] == [young.pk]
    assert reap("default", BACKOFF, 10, reach=6) == []
    assert [got.id for got in reap("default", BACKOFF, 10)] == [old.pk]


def test_reaping_goes_in_batches() -> None:
    for _ in range(5):
        lost()
    assert [len(reap("default", BACKOFF, 2)) for _ in range(4)] == [2, 2, 1, 0]


def test_release_hands_back_what_the_worker_does_not_hold() -> None:
    worker = uuid4()
    held, unheld, asked = JobFactory.create_batch(3, running=True, attempts=3, locked_by=worker)
    Job.objects.filter(pk=asked.pk).update(cancel_requested_at=ago(1))
    other = JobFactory(running=True)
    assert set(release_unheld("default", worker, [held.fencing_token])) == {unheld.pk, asked.pk}
    for job, status, attempts in ((held, "RUNNING", 3), (other, "RUNNING", 1), (unheld, "QUEUED", 2)):
        now = Job.objects.get(pk=job.pk)
        assert (now.status, now.attempts) == (status, attempts)
    now = Job.objects.get(pk=asked.pk)
    assert (now.status, now.reason, now.finished_at is None) == ("CANCELLED", "cancel requested", False)
    assert Job.objects.get(pk=unheld.pk).run_at == unheld.run_at
    assert release_unheld("default", worker, []) == [held.pk], "it holds nothing at all"


def test_what_did_not_start_in_time_is_cancelled() -> None:
    late, later = JobFactory(expires_at=ago(1)), JobFactory(expires_at=ago(2))
    JobFactory(expires_at=ago(-60)), JobFactory(), JobFactory(running=True, expires_at=ago(5))
    JobFactory(done=True, expires_at=ago(5)), JobFactory(failed=True, expires_at=ago(5))
    others = Job.objects.exclude(pk__in=[late.pk, later.pk]).order_by("id")
    before = list(others.values())
    assert [expire("default", 1), expire("default", 10), expire("default", 10)] == [1, 1, 0]
    for job in Job.objects.filter(pk__in=[late.pk, later.pk]):
        assert (job.status, job.reason, job.finished_at is None) == ("CANCELLED", "expired", False)
    assert list(others.values()) == before


@pytest.mark.parametrize("name", [name for name, (given, _) in OUTCOMES.items() if not given.unbegun])
def test_an_atomic_settle_records_what_the_exchange_would(name: str) -> None:
    given, expected = OUTCOMES[name]
    job = JobFactory(running=True, attempts=3)
    before = timezone.now()
    with transaction.atomic():
        assert settle("default", job.locked_by, Settlement(lease_of(job), given, '{"done": 5}'))
    now = Job.objects.get()
    finished = expected["status"] in ("DONE", "DEAD", "CANCELLED")
    assert (now.status, now.reason, now.attempts) == (
        expected["status"],
        expected.get("reason", ""),
        expected.get("attempts", 3),
    )
    assert (now.result, now.progress) == (expected.get("result"), {"done": 5})
    assert (now.locked_by, now.locked_until) == (job.locked_by if finished else None, None)
    assert (now.finished_at is not None) == finished
    if "delay" in expected:
        assert timedelta(seconds=expected["delay"]) <= now.run_at - before
    else:
        assert now.run_at == job.run_at
    attempts = list(
        JobAttempt.objects.values_list("fencing_token", "attempt", "status", "reason", "worker", "error_kind")
    )
    recorded = (job.fencing_token, 3, expected["status"], expected.get("reason", ""), job.locked_by, "shop.Trouble")
    assert attempts == ([recorded] if given.error else [])


@pytest.mark.parametrize("name", [name for name, (given, _) in OUTCOMES.items() if not given.unbegun])
def test_an_atomic_settle_minds_a_cancel_request(name: str) -> None:
    given, _ = OUTCOMES[name]
    job = JobFactory(running=True, attempts=3, cancel_requested_at=ago(1))
    assert settle("default", job.locked_by, Settlement(lease_of(job), given))
    now = Job.objects.get()
    assert now.status == ("DONE" if given.status == "DONE" else "CANCELLED")
    assert now.finished_at is not None


def test_an_atomic_settle_of_a_lost_lease_writes_nothing() -> None:
    job, queued = JobFactory(running=True), JobFactory(fencing_token=next_token())
    before = list(Job.objects.order_by("id").values())
    for lease in (lease_of(job, token=job.fencing_token - 1), lease_of(queued)):
        assert not settle("default", uuid4(), Settlement(lease, outcome.DONE))
    assert list(Job.objects.order_by("id").values()) == before


def test_discover_names_each_pair_with_the_time_of_its_first_job() -> None:
    JobFactory(queue="a", priority=0, run_at=ago(100)), JobFactory(queue="a", priority=0, run_at=ago(-900))
    JobFactory(queue="a", priority=5, run_at=ago(-900)), JobFactory(queue="a", priority=-5, failed=True, run_at=ago(50))
    (
        JobFactory(queue="b", priority=0, run_at=ago(10)),
        JobFactory(queue="é", priority=100),
        JobFactory(queue="Z", priority=-100),
    )
    JobFactory(queue="c", running=True), JobFactory(queue="c", done=True), JobFactory(queue="paused")
    QueueStateFactory(queue="paused"), QueueStateFactory(queue="b", paused=False)
    found = discover("default")
    assert {(work.queue, work.priority) for work in found} == {
        ("a", 5), ("a", 0), ("a", -5), ("b", 0), ("é", 100), ("Z", -100),
    }  # fmt: skip
    assert len(found) == 6
    due_in = {(work.queue, work.priority): work.due_in for work in found}
    assert -160 < due_in["a", 0] <= -100
    assert 840 < due_in["a", 5] <= 900
    fetch("DELETE FROM django_reliable_jobs_job")
    assert discover("default") == []
