"""What a fire does while the job of an earlier one is unfinished, and a job whose unique key is held."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_reliable_jobs import job
from django_reliable_jobs.definitions.schedule import cron
from django_reliable_jobs.errors import JobConfigurationError
from django_reliable_jobs.models import CronRun, Job
from django_reliable_jobs.schedules import ScheduleError
from tests.support.factories import JobFactory, ago
from tests.support.schedules.clock import DatabaseClock, utc
from tests.support.schedules.tools import fired, job_of, outcomes, row, runs, schedule, set_status, tick

pytestmark = pytest.mark.django_db

ONE, TWO, THREE, FOUR = (utc(f"2026-07-01 {hour}:00") for hour in (13, 14, 15, 16))


def fire_at(clock: DatabaseClock, *moments: object) -> None:
    for moment in moments:
        clock.set(moment)  # type: ignore[arg-type]
        tick()


def test_allow_enqueues_all_the_same(clock: DatabaseClock) -> None:
    schedule()
    fire_at(clock, ONE)
    set_status(job_of("report", ONE), "RUNNING")
    fire_at(clock, TWO)
    assert fired() == ["07-01 13:00", "07-01 14:00"]


@pytest.mark.parametrize("status", ["QUEUED", "RUNNING", "FAILED"])
def test_skip_leaves_a_row_while_the_job_before_is_unfinished(clock: DatabaseClock, status: str) -> None:
    schedule(overlap="skip")
    fire_at(clock, ONE)
    set_status(job_of("report", ONE), status)
    fire_at(clock, TWO, THREE)
    assert outcomes() == [
        ("07-01 13:00", "enqueued"), ("07-01 14:00", "skipped_overlap"), ("07-01 15:00", "skipped_overlap"),
    ]  # fmt: skip
    set_status(job_of("report", ONE), "DEAD")
    fire_at(clock, FOUR)
    assert fired() == ["07-01 13:00", "07-01 16:00"]


def test_another_schedules_job_is_no_overlap(clock: DatabaseClock) -> None:
    schedule("a", overlap="skip")
    schedule("b", overlap="skip")
    fire_at(clock, ONE)
    set_status(job_of("a", ONE), "RUNNING")
    set_status(job_of("b", ONE), "DONE")
    fire_at(clock, TWO)
    assert fired("a") == ["07-01 13:00"]
    assert fired("b") == ["07-01 13:00", "07-01 14:00"]


def test_an_old_job_that_a_person_retries_counts_however_old_it_is(clock: DatabaseClock) -> None:
    schedule(overlap="skip")
    fire_at(clock, ONE)
    old = job_of("report", ONE)
    set_status(old, "DEAD")
    for _ in range(30):
        fire_at(clock, clock.now + timedelta(hours=1))
        Job.objects.exclude(pk=old.pk).update(status="DONE")
    set_status(old, "QUEUED")
    fire_at(clock, clock.now + timedelta(hours=1))
    assert runs()[-1].outcome == "skipped_overlap"


def test_queue_lets_one_wait_until_the_running_one_has_finished(clock: DatabaseClock) -> None:
    schedule(overlap="queue")
    fire_at(clock, ONE)
    set_status(job_of("report", ONE), "RUNNING")
    fire_at(clock, TWO)
    assert (fired(), row().waiting_for) == (["07-01 13:00"], TWO)
    assert row().next_fire_at == TWO + timedelta(seconds=1), "it is looked at again soon"
    fire_at(clock, TWO + timedelta(minutes=20), THREE)
    assert outcomes() == [("07-01 13:00", "enqueued"), ("07-01 15:00", "skipped_overlap")]
    assert row().waiting_for == TWO

    set_status(job_of("report", ONE), "DONE")
    fire_at(clock, THREE + timedelta(seconds=1))
    assert fired() == ["07-01 13:00", "07-01 14:00"]
    assert (row().waiting_for, row().next_fire_at) == (None, FOUR)
    assert job_of("report", TWO).scheduled_for == TWO
    set_status(job_of("report", TWO), "DONE")
    fire_at(clock, FOUR)
    assert fired() == ["07-01 13:00", "07-01 14:00", "07-01 16:00"]


def test_queue_skips_when_one_waits_already(clock: DatabaseClock) -> None:
    schedule(overlap="queue")
    fire_at(clock, ONE, TWO)
    assert outcomes() == [("07-01 13:00", "enqueued"), ("07-01 14:00", "skipped_overlap")]


def test_cancel_running_asks_the_unfinished_ones_to_stop(clock: DatabaseClock) -> None:
    schedule(overlap="cancel_running")
    fire_at(clock, ONE)
    set_status(job_of("report", ONE), "RUNNING")
    fire_at(clock, TWO)
    first, second = job_of("report", ONE), job_of("report", TWO)
    assert (first.status, first.cancel_requested_at) == ("RUNNING", TWO), "its worker stops it"
    assert second.status == "QUEUED"
    fire_at(clock, THREE)
    assert job_of("report", TWO).status == "CANCELLED", "one that had not begun ends at once"
    assert job_of("report", THREE).status == "QUEUED"
    assert len(fired()) == 3


def test_missed_times_under_skip_make_one_job(clock: DatabaseClock) -> None:
    schedule(overlap="skip", misfire="all")
    fire_at(clock, FOUR)
    assert outcomes() == [
        ("07-01 13:00", "enqueued"), ("07-01 14:00", "skipped_overlap"), ("07-01 15:00", "skipped_overlap"),
        ("07-01 16:00", "skipped_overlap"),
    ]  # fmt: skip


# --- unique keys: see test_races.py for a holder that is not committed yet


@job(name="tests.keyed", unique_key="the only one")
def keyed() -> None: ...


@job(name="tests.keyed_until_start", unique_key="until it starts", unique_until="start")
def keyed_until_start() -> None: ...


@pytest.mark.django_db(transaction=True)
def test_a_held_unique_key_takes_the_fire_time_without_a_job(clock: DatabaseClock) -> None:
    """C20: run and job are there together or not at all, and the schedule goes on."""
    keyed.enqueue()
    schedule(job="tests.keyed")
    schedule("other")
    fire_at(clock, ONE)
    assert [(run.outcome, run.detail, run.job_id) for run in runs()] == [
        ("skipped_overlap", "an unfinished job holds the unique key", None)
    ]
    assert fired("other") == ["07-01 13:00"]
    Job.objects.filter(name="tests.keyed").update(status="DONE")
    fire_at(clock, TWO)
    assert fired() == ["07-01 14:00"]


@pytest.mark.django_db(transaction=True)
def test_a_holder_that_has_expired_gives_its_key_up(clock: DatabaseClock) -> None:
    keyed.using(expires=60).enqueue()
    schedule(job="tests.keyed")
    fire_at(clock, ONE)
    assert fired() == ["07-01 13:00"]
    assert sorted(Job.objects.values_list("status", flat=True)) == ["CANCELLED", "QUEUED"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("name", "cancelled"), [("tests.other", False), ("tests.keyed", True)])
def test_another_jobs_key_and_one_that_is_being_cancelled_hold_no_fire_time(
    clock: DatabaseClock, name: str, cancelled: bool
) -> None:
    """P07, P30: the job of the fire time stands beside the other one, and bears its scope."""
    JobFactory(
        name=name, unique_key="the only one", running=cancelled, cancel_requested_at=ago(1) if cancelled else None
    )
    schedule(job="tests.keyed")
    fire_at(clock, ONE)
    assert fired() == ["07-01 13:00"]
    assert Job.objects.latest("id").scope == "tests.keyed"
    fire_at(clock, TWO)
    assert fired() == ["07-01 13:00"], "it holds its own key"


@pytest.mark.django_db(transaction=True)
def test_of_several_missed_times_with_one_key_the_first_gets_the_job(clock: DatabaseClock) -> None:
    schedule(job="tests.keyed", misfire="all")
    fire_at(clock, THREE)
    assert fired() == ["07-01 13:00"]
    assert len(runs(outcome="skipped_overlap")) == 2


@pytest.mark.django_db(transaction=True)
def test_cancel_running_frees_the_key_of_one_that_has_not_begun(clock: DatabaseClock) -> None:
    schedule(job="tests.keyed_until_start", overlap="cancel_running")
    fire_at(clock, ONE, TWO)
    assert [job_of("report", moment).status for moment in (ONE, TWO)] == ["CANCELLED", "QUEUED"]


def test_cancel_running_and_a_key_until_the_finish_are_refused() -> None:
    with pytest.raises(JobConfigurationError, match="unique_until"):
        cron("0 * * * *", overlap="cancel_running")(keyed)
    with pytest.raises(ScheduleError, match="unique_until"):
        schedule(job="tests.keyed", overlap="cancel_running")
    cron("0 * * * *", overlap="cancel_running")(keyed_until_start)


def test_a_unique_key_that_cannot_be_computed_is_an_error_of_that_fire_time(
    clock: DatabaseClock, caplog: pytest.LogCaptureFixture
) -> None:
    @job(name="tests.bad_key", unique_key=lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    def bad_key() -> None: ...

    schedule(job="tests.bad_key")
    fire_at(clock, ONE, TWO)
    assert outcomes() == [("07-01 13:00", "error"), ("07-01 14:00", "error")]
    assert "ZeroDivisionError" in runs()[0].detail
    assert "schedule report: no job for 2026-07-01 13:00:00+00:00: ZeroDivisionError" in caplog.text
    assert row().broken == "", "the next version of the code may do better"
    assert CronRun.objects.filter(job_id__isnull=False).count() == 0
