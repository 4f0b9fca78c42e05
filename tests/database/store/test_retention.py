"""Prune: finished jobs at the end of their retention, and nothing else."""

from __future__ import annotations

import pytest

from django_reliable_jobs.models import Job, JobAttempt, JobCheckpoint, JobStatus, Worker
from django_reliable_jobs.store import worker_row
from django_reliable_jobs.store.prune import prune
from tests.support.factories import JobAttemptFactory, JobCheckpointFactory, JobFactory, WorkerFactory, ago
from tests.support.sessions import Session, impatient

pytestmark = pytest.mark.django_db

DAY = 86_400
FINISHED = {"done": JobStatus.DONE, "dead": JobStatus.DEAD, "cancelled": JobStatus.CANCELLED}


@pytest.mark.parametrize("trait", FINISHED)
def test_each_status_has_its_own_retention(trait: str) -> None:
    old = {name: JobFactory(**{name: True}, finished_at=ago(8 * DAY)) for name in FINISHED}
    young = {name: JobFactory(**{name: True}, finished_at=ago(6 * DAY)) for name in FINISHED}
    assert prune("default", FINISHED[trait], 7 * DAY, 100) == 1
    left = {job.pk for name, job in old.items() if name != trait} | {job.pk for job in young.values()}
    assert set(Job.objects.values_list("id", flat=True)) == left


@pytest.mark.parametrize("status", ["QUEUED", "RUNNING", "FAILED"])
def test_an_unfinished_job_is_never_deleted(status: str) -> None:
    traits = {} if status == "QUEUED" else {status.lower(): True}
    JobFactory(**traits, finished_at=ago(900 * DAY), created_at=ago(900 * DAY), run_at=ago(900 * DAY))
    for any_status in JobStatus:
        assert prune("default", any_status, 0, 100) == 0
    assert Job.objects.count() == 1


def test_attempts_and_checkpoints_go_with_their_job() -> None:
    old, young = JobFactory(dead=True, finished_at=ago(9)), JobFactory(dead=True, finished_at=ago(-9))
    for job in (old, young):
        JobAttemptFactory.create_batch(3, job=job)
        JobCheckpointFactory(job=job)
    assert prune("default", JobStatus.DEAD, 1, 100) == 1
    assert JobAttempt.objects.filter(job_id=young.pk).count() == JobAttempt.objects.count() == 3
    assert JobCheckpoint.objects.get().job_id == young.pk


def test_it_goes_in_batches_from_the_oldest() -> None:
    jobs = [JobFactory(done=True, finished_at=ago(age)) for age in (30, 50, 40, 20, 10)]
    assert prune("default", JobStatus.DONE, 5, 2) == 2
    assert set(Job.objects.values_list("id", flat=True)) == {jobs[0].pk, jobs[3].pk, jobs[4].pk}
    assert [prune("default", JobStatus.DONE, 5, 2) for _ in range(3)] == [2, 1, 0]


@pytest.mark.django_db(transaction=True)
def test_a_job_that_somebody_holds_is_left_for_later() -> None:
    held, _ = JobFactory.create_batch(2, done=True)
    with Session() as admin:
        admin.begin()
        admin.sql("SELECT 1 FROM django_reliable_jobs_job WHERE id = %s FOR SHARE", [held.pk])
        impatient()
        assert prune("default", JobStatus.DONE, 1, 100) == 1
    assert Job.objects.get().pk == held.pk
    assert prune("default", JobStatus.DONE, 1, 100) == 1


def test_workers_that_ended_in_order_or_were_not_seen_for_long_go() -> None:
    left, vanished, alive = WorkerFactory(), WorkerFactory(last_seen=ago(4000)), WorkerFactory(last_seen=ago(3000))
    assert worker_row.gone("default", [left.pk]) == 2
    assert Worker.objects.get() == alive
    assert vanished != left
