"""A fire time that is due gets its run and its job, once; what was missed is made up for as the schedule says."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from django_reliable_jobs import job
from django_reliable_jobs.models import CronRun, CronSchedule, Job
from tests.support.schedules.clock import DatabaseClock, utc
from tests.support.schedules.tools import NOOP, fired, outcomes, row, runs, schedule, short, tick, worker

pytestmark = pytest.mark.django_db


def test_a_fire_time_gets_a_run_and_a_job_together(clock: DatabaseClock) -> None:
    scheduler = worker()
    schedule(kwargs={"number": 7})
    assert tick(scheduler) > 0
    assert not CronRun.objects.exists(), "nothing is due before its time"
    clock.set(utc("2026-07-01 13:00") + timedelta(milliseconds=80))
    tick(scheduler)

    [run], [made] = runs(), list(Job.objects.all())
    assert (run.outcome, run.job_id, run.fired_by, run.manual) == ("enqueued", made.pk, scheduler.worker, False)
    assert run.scheduled_for == made.scheduled_for == utc("2026-07-01 13:00")
    assert run.lateness == pytest.approx(0.08)
    assert (made.name, made.status, made.kwargs, made.run_at) == (NOOP, "QUEUED", {"number": 7}, clock.now)
    assert (row().fired_through, row().next_fire_at) == (utc("2026-07-01 13:00"), utc("2026-07-01 14:00"))
    tick(scheduler)
    tick()
    assert CronRun.objects.count() == Job.objects.count() == 1


def test_the_next_look_is_when_the_next_schedule_is_due(clock: DatabaseClock) -> None:
    schedule()
    clock.set(utc("2026-07-01 12:59:59.500000"))
    assert 0.49 < tick() < 0.6
    clock.set(utc("2026-07-01 12:30"))
    assert tick() == 1, "POLL at most"


def test_each_fire_time_of_every_schedule_is_taken_once(clock: DatabaseClock) -> None:
    """C19, in one process: the race is in test_races.py."""
    workers = [worker() for _ in range(4)]
    for number in range(51):
        schedule(f"s{number}", "* * * * *" if number == 0 else f"*/{1 + number % 3} * * * *")
    for _ in range(20):
        clock.advance(minutes=1)
        for one in workers:
            tick(one)
    expected = sum(20 // (1 if number == 0 else 1 + number % 3) for number in range(51))
    assert CronRun.objects.filter(outcome="enqueued").count() == Job.objects.count() == expected
    assert len({(run.name, run.scheduled_for) for run in CronRun.objects.all()}) == expected


@pytest.mark.parametrize(
    ("misfire", "made", "skipped"),
    [
        ("latest", ["07-01 17:00"], ("07-01 13:00", "07-01 16:00", 4)),
        ("skip", [], ("07-01 13:00", "07-01 17:00", 5)),
        ("all", [f"07-01 {hour}:00" for hour in range(13, 18)], None),
    ],
)
def test_what_was_missed_is_made_up_for_as_the_schedule_says(
    clock: DatabaseClock, misfire: str, made: list[str], skipped: tuple[str, str, int] | None
) -> None:
    schedule(misfire=misfire)
    clock.set(utc("2026-07-01 17:30"))
    tick()
    assert fired() == made
    stretch = [
        (short(run.scheduled_for), short(run.skipped_through), run.skipped_count)
        for run in runs(outcome="skipped_misfire")
        if run.skipped_through is not None
    ]
    assert stretch == ([skipped] if skipped else [])
    assert Job.objects.count() == len(made)
    clock.set(utc("2026-07-01 18:00"))
    tick()
    assert fired() == [*made, "07-01 18:00"], "and goes on with the next time"


@pytest.mark.parametrize("late", [2, 30, 59])
def test_late_is_not_missed(clock: DatabaseClock, late: int) -> None:
    """C24."""
    schedule(misfire="skip")
    clock.set(utc("2026-07-01 13:00") + timedelta(seconds=late))
    tick()
    assert fired() == ["07-01 13:00"]


def test_beyond_the_grace_a_skipped_time_is_visible(clock: DatabaseClock, caplog: pytest.LogCaptureFixture) -> None:
    """C24."""
    schedule(misfire="skip")
    clock.set(utc("2026-07-01 13:05"))
    tick()
    assert outcomes() == [("07-01 13:00", "skipped_misfire")]
    assert "schedule report: 1 fire times from 2026-07-01 13:00:00+00:00" in caplog.text


def test_a_day_without_workers_makes_no_storm(clock: DatabaseClock) -> None:
    """C17: 1,440 fire times were missed by one schedule, 24 by each of three others; two workers come back."""
    schedule("minutely", "* * * * *")
    for number in range(3):
        schedule(f"hourly-{number}", "0 * * * *")
    clock.advance(days=1)
    one, other = worker(), worker()
    tick(one)
    tick(other)
    assert sorted(Job.objects.values_list("scheduled_for__hour", "scheduled_for__minute")) == [(12, 0)] * 4
    assert CronRun.objects.filter(outcome="skipped_misfire").count() == 4
    clock.advance(seconds=60)
    tick(other)
    assert fired("minutely") == ["07-02 12:00", "07-02 12:01"], "the first time on time is taken at its minute"


def test_400_days_without_workers_are_dealt_with_in_no_time(clock: DatabaseClock) -> None:
    schedule("every minute", "* * * * *", timezone="America/New_York")
    schedule("all of them", "* * * * *", misfire="all", catch_up_window=timedelta(days=500), catch_up_limit=50)
    clock.advance(days=400)
    began = time.perf_counter()
    tick()
    took = time.perf_counter() - began
    print(f"first tick after 400 days: {took * 1000:.0f} ms")
    assert took < 10, "generous: it takes some 50 ms on a quiet machine"
    [stretch, latest] = runs("every minute")
    assert (stretch.skipped_count, latest.outcome) == (400 * 24 * 60 - 1, "enqueued")
    assert len(fired("all of them")) == 50
    assert runs("all of them")[0].skipped_count == 400 * 24 * 60 - 50


def test_a_schedule_fires_between_its_start_and_its_end(clock: DatabaseClock) -> None:
    schedule(starts_at=utc("2026-07-01 14:00"), ends_at=utc("2026-07-01 16:00"))
    for _ in range(8):
        clock.advance(minutes=60)
        tick()
    assert fired() == ["07-01 14:00", "07-01 15:00", "07-01 16:00"]
    assert row().next_fire_at is None


def test_a_clock_change_gives_the_right_instants(clock: DatabaseClock) -> None:
    """C06: 02:20 comes twice in Paris on 25 October."""
    clock.set(utc("2026-10-24 12:00"))
    schedule("daily", "20 2 * * *", timezone="Europe/Paris", misfire="all", catch_up_window=timedelta(days=9))
    one, other = worker(), worker()
    while clock.now < utc("2026-10-27 12:00"):
        clock.advance(minutes=10)
        tick(one)
        tick(other)
    assert fired("daily") == ["10-25 00:20", "10-26 01:20", "10-27 01:20"]


def test_jitter_delays_the_job_by_the_same_time_on_every_pod(clock: DatabaseClock) -> None:
    for number in range(30):
        schedule(f"s{number}", jitter=600)
    clock.set(utc("2026-07-01 13:00"))
    tick()
    first = {run.name: run.job.run_at for run in CronRun.objects.all() if run.job}
    delays = sorted((run_at - clock.now).total_seconds() for run_at in first.values())
    assert 0 <= delays[0] < 120
    assert 480 < delays[-1] < 600
    assert len(set(delays)) == 30
    Job.objects.all().delete()
    CronRun.objects.all().delete()
    for number in range(30):  # the same fire time again, somewhat later, on another pod
        schedule(f"s{number}", jitter=600, timezone="Europe/London")
    clock.set(utc("2026-07-01 13:00"))
    CronSchedule.objects.update(fired_through=utc("2026-07-01 12:30"), next_fire_at=clock.now)
    clock.advance(seconds=20)
    tick()
    for run in CronRun.objects.all():
        assert run.job is not None
        assert run.job.run_at == max(first[run.name], clock.now)


def test_the_handler_gets_its_fire_time(clock: DatabaseClock) -> None:
    @job(name="tests.takes_fire_time", unique_key=lambda day, scheduled_for: f"{day} {scheduled_for:%H:%M}")
    def handler(day: str, scheduled_for: object) -> None: ...

    schedule(job="tests.takes_fire_time", args=["monday"])
    clock.set(utc("2026-07-01 13:00"))
    tick()
    assert Job.objects.get().unique_key == "monday 13:00", "a unique key of the arguments sees it as well"


def test_the_options_of_the_job_hold_for_its_scheduled_jobs(clock: DatabaseClock) -> None:
    @job(name="tests.with_options", queue="mail", priority=7, max_attempts=2, timeout=9, expires=120)
    def handler() -> None: ...

    schedule(job="tests.with_options")
    clock.set(utc("2026-07-01 13:00"))
    tick()
    made = Job.objects.get()
    assert (made.queue, made.priority, made.max_attempts, made.timeout) == ("mail", 7, 2, 9)
    assert made.expires_at == clock.now + timedelta(seconds=120)
