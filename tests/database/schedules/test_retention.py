"""A run outlives its job and keeps its outcome; what is pruned never fires again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_reliable_jobs.models import CronRun, Job, JobStatus
from django_reliable_jobs.models.schedule import CronRunQuerySet
from django_reliable_jobs.store.prune import prune, prune_runs
from tests.support.schedules.clock import DatabaseClock, utc
from tests.support.schedules.tools import fired, job_of, outcomes, runs, schedule, set_status, tick

pytestmark = pytest.mark.django_db

ONE, TWO = utc("2026-07-01 13:00"), utc("2026-07-01 14:00")


def shown() -> CronRun:
    queryset = CronRun.objects.all()
    assert isinstance(queryset, CronRunQuerySet)
    return queryset.with_job().get()


def both_ways(status: str) -> None:
    assert (runs()[0].status, shown().status) == (status, status)


def test_a_run_shows_its_jobs_status_and_keeps_the_last_one(clock: DatabaseClock) -> None:
    schedule()
    clock.set(ONE)
    tick()
    both_ways("QUEUED")
    for status in ("RUNNING", "FAILED", "DEAD"):
        set_status(job_of("report", ONE), status)
        both_ways(status)
    finished = timezone.now() - timedelta(days=200)
    Job.objects.update(finished_at=finished)
    assert runs()[0].finished_at == shown().finished_at == finished
    assert prune("default", JobStatus.DEAD, 3600, 10) == 1
    assert not Job.objects.exists()
    both_ways("DEAD")
    assert runs()[0].finished_at == shown().finished_at == finished
    assert runs()[0].job is None


def test_pruned_jobs_neither_run_again_nor_block_new_ones(clock: DatabaseClock) -> None:
    """C20."""
    schedule(overlap="skip", misfire="all")
    clock.set(ONE)
    tick()
    set_status(job_of("report", ONE), "DONE")
    Job.objects.update(finished_at=clock.now - timedelta(days=9))
    assert prune("default", JobStatus.DONE, 3600, 10) == 1
    tick()
    assert not Job.objects.exists()
    clock.set(TWO)
    tick()
    assert fired() == ["07-01 13:00", "07-01 14:00"]
    assert Job.objects.get().scheduled_for == TWO


def test_pruned_runs_never_let_their_times_fire_again(clock: DatabaseClock) -> None:
    schedule(misfire="all", catch_up_window=timedelta(days=3000))
    clock.set(ONE)
    tick()
    set_status(job_of("report", ONE), "DONE")
    clock.advance(minutes=30)
    assert prune_runs("default", 3600, 10) == 0
    assert prune_runs("default", 600, 10) == 1
    tick()
    assert not CronRun.objects.exists()
    clock.set(TWO)
    tick()
    assert fired() == ["07-01 14:00"]


@pytest.mark.parametrize("status", ["QUEUED", "RUNNING", "FAILED"])
def test_the_run_of_an_unfinished_job_is_kept(clock: DatabaseClock, status: str) -> None:
    """A short retention must not let the next fire forget what is running."""
    schedule(overlap="skip")
    clock.set(ONE)
    tick()
    set_status(job_of("report", ONE), status)
    clock.advance(minutes=59)
    assert prune_runs("default", 60, 10) == 0
    clock.set(TWO)
    tick()
    assert outcomes()[-1] == ("07-01 14:00", "skipped_overlap")


def test_runs_are_pruned_in_batches_from_the_oldest(clock: DatabaseClock) -> None:
    schedule(misfire="skip")
    for _ in range(5):
        clock.advance(hours=1)
        clock.advance(minutes=5)
        tick()
    clock.advance(days=1)
    assert [prune_runs("default", 3600, 2) for _ in range(3)] == [2, 2, 1]
