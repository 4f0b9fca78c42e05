"""`pause_after_failures`: so many DEAD jobs in a row pause a schedule, and a person decides."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_reliable_jobs.control.schedules import resume_schedule
from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.store.prune import prune
from tests.support.schedules.clock import DatabaseClock
from tests.support.schedules.tools import fired, outcomes, row, schedule, set_status, tick

pytestmark = pytest.mark.django_db


def run_hours(clock: DatabaseClock, *statuses: str) -> None:
    """Fire once an hour, and let each job end like this."""
    for status in statuses:
        clock.set(clock.now + timedelta(hours=1))
        tick()
        for made in Job.objects.filter(status="QUEUED"):
            set_status(made, status)


def test_it_is_paused_instead_of_the_next_fire(clock: DatabaseClock, caplog: pytest.LogCaptureFixture) -> None:
    schedule(pause_after_failures=3)
    run_hours(clock, "DEAD", "DEAD", "DEAD")
    assert not row().paused
    run_hours(clock, "-")
    assert row().paused
    assert len(fired()) == 3
    assert "schedule report is paused: its last 3 jobs are DEAD" in caplog.text
    run_hours(clock, "-", "-")
    assert len(fired()) == 3


def test_without_it_nothing_is_paused(clock: DatabaseClock) -> None:
    schedule()
    run_hours(clock, *["DEAD"] * 12)
    assert len(fired()) == 12


@pytest.mark.parametrize("between", ["DONE", "CANCELLED"])
def test_anything_else_in_between_breaks_the_row(clock: DatabaseClock, between: str) -> None:
    schedule(pause_after_failures=2)
    run_hours(clock, "DEAD", between, "DEAD", between, "DEAD", between)
    assert len(fired()) == 6


def test_unfinished_jobs_do_not_count_either_way(clock: DatabaseClock) -> None:
    schedule(pause_after_failures=2)
    run_hours(clock, "DEAD", "RUNNING", "DEAD", "-")
    assert (len(fired()), row().paused) == (3, True)


def test_resumed_it_has_all_its_chances_again(clock: DatabaseClock) -> None:
    schedule(pause_after_failures=2)
    run_hours(clock, "DEAD", "DEAD", "-")
    assert row().paused
    assert resume_schedule("report")
    run_hours(clock, "DEAD")
    assert (len(fired()), row().paused) == (3, False)
    run_hours(clock, "DEAD", "-")
    assert (len(fired()), row().paused) == (4, True)


def test_failures_count_after_their_jobs_were_pruned(clock: DatabaseClock) -> None:
    schedule(pause_after_failures=2)
    run_hours(clock, "DEAD", "DEAD")
    Job.objects.update(finished_at=clock.now - timedelta(hours=2))
    assert prune("default", JobStatus.DEAD, 60, 100) == 2
    run_hours(clock, "-")
    assert row().paused


def test_a_time_that_waits_when_it_is_paused_is_recorded(clock: DatabaseClock) -> None:
    schedule(pause_after_failures=1, overlap="queue")
    run_hours(clock, "RUNNING")
    run_hours(clock, "-")
    assert row().waiting_for is not None
    set_status(Job.objects.get(), "DEAD")
    run_hours(clock, "-")
    assert (row().paused, row().waiting_for) == (True, None)
    assert outcomes() == [("07-01 13:00", "enqueued"), ("07-01 14:00", "skipped_overlap")]
