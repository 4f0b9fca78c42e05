"""A new, edited or resumed schedule never catches up on times before that moment (C15)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_reliable_jobs.control.schedules import delete_schedule, pause_schedule, resume_schedule
from django_reliable_jobs.models import CronSchedule
from tests.support.schedules.clock import DatabaseClock, utc
from tests.support.schedules.tools import fired, job_of, outcomes, row, runs, schedule, set_status, tick

pytestmark = pytest.mark.django_db


def test_a_new_schedule_waits_for_its_first_time(clock: DatabaseClock) -> None:
    schedule("yearly", "0 0 1 1 *", misfire="all", catch_up_window=timedelta(days=3000))
    tick()
    assert not runs("yearly")
    assert row("yearly").next_fire_at == utc("2027-01-01 00:00")


def test_changed_at_noon_it_fires_at_its_new_time_only(clock: DatabaseClock) -> None:
    clock.set(utc("2026-07-01 08:00"))
    schedule(expression="30 13 * * *")
    clock.set(utc("2026-07-01 13:30"))
    tick()
    clock.set(utc("2026-07-02 12:20"))
    schedule(expression="0 16 * * *")
    tick()
    for minutes in range(0, 300, 10):
        clock.set(utc("2026-07-02 12:20") + timedelta(minutes=minutes))
        tick()
    assert fired() == ["07-01 13:30", "07-02 16:00"]


def test_changed_to_an_earlier_time_it_waits_until_tomorrow(clock: DatabaseClock) -> None:
    schedule(expression="30 13 * * *")
    schedule(expression="0 9 * * *", misfire="all")
    tick()
    assert not runs()
    assert row().next_fire_at == utc("2026-07-02 09:00")


def test_resumed_it_goes_on_with_the_next_time(clock: DatabaseClock) -> None:
    schedule(misfire="all")
    clock.set(utc("2026-07-02 00:10"))
    tick()
    before = fired()
    assert pause_schedule("report")
    assert not pause_schedule("report"), "it was so"
    clock.set(utc("2026-07-02 03:50"))
    tick()
    assert resume_schedule("report")
    assert not resume_schedule("report"), "it was so"
    tick()
    assert fired() == before
    clock.set(utc("2026-07-02 04:00"))
    tick()
    assert fired() == [*before, "07-02 04:00"]


@pytest.mark.parametrize(
    "change",
    [
        {"expression": "*/30 * * * *"}, {"timezone": "Asia/Kathmandu"}, {"misfire": "all"},
        {"misfire": "all", "catch_up_window": 9e6}, {"kwargs": {"number": 1}}, {"job": "probes.anoop"},
        {"overlap": "skip"}, {"jitter": 5}, {"starts_at": utc("2026-01-01 00:00")},
    ],
    ids=str,
)  # fmt: skip
def test_no_edit_catches_up_on_what_was_missed(clock: DatabaseClock, change: dict[str, Any]) -> None:
    schedule(misfire="latest")
    clock.set(utc("2026-07-01 17:20"))  # nobody was there for five hours
    schedule(**change)
    tick()
    assert not runs()
    assert row().next_fire_at is not None
    assert row().next_fire_at > clock.now


@pytest.mark.parametrize("change", [{"kwargs": {"number": 1}}, {"job": "probes.anoop"}, {"overlap": "skip"}], ids=str)
def test_an_edit_that_does_not_touch_the_times_loses_none_that_is_merely_late(
    clock: DatabaseClock, change: dict[str, Any]
) -> None:
    """A deploy at the very moment of a fire must not swallow it."""
    schedule()
    clock.set(utc("2026-07-01 13:00") + timedelta(seconds=3))
    schedule(**change)
    tick()
    assert fired() == ["07-01 13:00"]
    made = job_of("report", utc("2026-07-01 13:00"))
    assert (made.name, made.kwargs) == (change.get("job", "probes.noop"), change.get("kwargs", {}))


def test_saving_without_a_change_changes_nothing(clock: DatabaseClock) -> None:
    schedule()
    before = CronSchedule.objects.values().get()
    clock.advance(minutes=30)
    schedule()
    assert CronSchedule.objects.values().get() == before


def test_every_change_raises_the_version(clock: DatabaseClock) -> None:
    schedule()
    for number, change in enumerate([{"jitter": 1}, {"jitter": 2}, {"overlap": "skip"}], start=2):
        schedule(**change)  # type: ignore[arg-type]
        assert row().version == number
    pause_schedule("report")
    resume_schedule("report")
    assert row().version == 6


def test_a_pause_survives_an_edit(clock: DatabaseClock) -> None:
    schedule()
    pause_schedule("report")
    schedule(expression="*/5 * * * *")
    clock.advance(hours=1)
    tick()
    assert row().paused
    assert not runs()


@pytest.mark.parametrize("what", ["pause", "edit", "delete"])
def test_a_time_that_waited_is_not_made_up_for(clock: DatabaseClock, what: str) -> None:
    schedule(overlap="queue")
    for hour in (13, 14):
        clock.set(utc(f"2026-07-01 {hour}:00"))
        tick()
        set_status(job_of("report", utc("2026-07-01 13:00")), "RUNNING")
    assert row().waiting_for == utc("2026-07-01 14:00")
    if what == "pause":
        pause_schedule("report")
        resume_schedule("report")
    elif what == "edit":
        schedule(expression="30 * * * *", overlap="queue")
    else:
        delete_schedule("report")
        schedule(overlap="queue")
    set_status(job_of("report", utc("2026-07-01 13:00")), "DONE")
    clock.advance(minutes=5)
    tick()
    assert outcomes() == [("07-01 13:00", "enqueued"), ("07-01 14:00", "skipped_overlap")]
    assert "while it waited" in runs()[1].detail


def test_a_time_that_waits_stays_through_an_edit_that_does_not_touch_the_times(clock: DatabaseClock) -> None:
    schedule(overlap="queue")
    for hour in (13, 14):
        clock.set(utc(f"2026-07-01 {hour}:00"))
        tick()
        set_status(job_of("report", utc("2026-07-01 13:00")), "RUNNING")
    schedule(overlap="queue", kwargs={"number": 3})
    set_status(job_of("report", utc("2026-07-01 13:00")), "DONE")
    clock.advance(minutes=1)
    tick()
    assert job_of("report", utc("2026-07-01 14:00")).kwargs == {"number": 3}


def test_deleted_and_made_again_it_does_not_repeat_its_times(clock: DatabaseClock) -> None:
    schedule()
    clock.set(utc("2026-07-01 13:00"))
    tick()
    assert delete_schedule("report")
    assert not delete_schedule("report")
    schedule(misfire="all")
    tick()
    assert fired() == ["07-01 13:00"]
