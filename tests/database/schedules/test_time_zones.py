"""C26: `USE_TZ=False` with a TIME_ZONE far from UTC fires at the same instants; all comparisons are the database's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import override_settings

from django_reliable_jobs.control.schedules import backfill, pause_schedule, resume_schedule, run_schedule
from django_reliable_jobs.models import CronRun, Job
from tests.support.schedules.clock import SEARCH_PATH, DatabaseClock, utc
from tests.support.schedules.tools import fired, outcomes, schedule, set_status, tick

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[(True, "UTC"), (True, "Asia/Kathmandu"), (False, "Asia/Kathmandu"), (False, "America/New_York")],
                ids=lambda param: f"USE_TZ={param[0]} {param[1]}")  # fmt: skip
def _zone(request: pytest.FixtureRequest, clock: DatabaseClock) -> Iterator[None]:
    use_tz, zone = request.param
    with override_settings(USE_TZ=use_tz, TIME_ZONE=zone):
        reconnect()
        yield
    reconnect()


def reconnect() -> None:
    """A connection takes these settings when it is opened."""
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute(f"SET search_path = {SEARCH_PATH}")


@pytest.mark.usefixtures("_zone")
def test_a_minutely_schedule_runs_once_a_minute(clock: DatabaseClock) -> None:
    schedule("minutely", "* * * * *")
    for _ in range(5):
        clock.advance(minutes=1)
        assert tick() > 0, "no endless loop"
    assert fired("minutely") == [f"07-01 12:0{minute}" for minute in range(1, 6)]
    assert all(0 <= run.lateness < 1 for run in CronRun.objects.all())


@pytest.mark.usefixtures("_zone")
def test_the_hour_that_comes_twice_is_no_trap(clock: DatabaseClock) -> None:
    """01:30 comes twice in New York on 1 November: local times without a zone do not say which."""
    clock.set(utc("2026-11-01 04:40"))
    schedule("half-hourly", "*/30 * * * *", timezone="America/New_York")
    while clock.now < utc("2026-11-01 07:30"):
        clock.advance(minutes=10)
        assert tick() > 0
    assert fired("half-hourly") == [
        "11-01 05:00", "11-01 05:30", "11-01 06:00", "11-01 06:30", "11-01 07:00", "11-01 07:30",
    ]  # fmt: skip


@pytest.mark.usefixtures("_zone")
def test_what_people_do_works_in_every_zone(clock: DatabaseClock) -> None:
    schedule(overlap="queue", misfire="skip")
    clock.set(utc("2026-07-01 13:00"))
    tick()
    set_status(Job.objects.get(), "RUNNING")
    clock.set(utc("2026-07-01 14:00"))
    tick()
    pause_schedule("report")
    clock.advance(hours=2)
    resume_schedule("report")
    tick()
    assert outcomes() == [("07-01 13:00", "enqueued"), ("07-01 14:00", "skipped_overlap")]
    assert len(backfill("report", utc("2026-07-01 13:00"), utc("2026-07-01 16:00"))) == 3
    assert fired() == ["07-01 13:00", "07-01 14:00", "07-01 15:00", "07-01 16:00"]
    clock.advance(seconds=1)
    run_schedule("report")
    assert CronRun.objects.filter(manual=True).count() == 4
    Job.objects.update(status="DONE")
    clock.set(utc("2026-07-01 17:00"))
    tick()
    assert fired()[-1] == "07-01 17:00"
