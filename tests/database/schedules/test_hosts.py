"""A host that cannot compute a schedule leaves it to those that can (P29): one without its time zone, or with older code."""

from __future__ import annotations

from datetime import datetime

import pytest

from django_reliable_jobs.firing import plan as firing
from django_reliable_jobs.models import CronSchedule, KnownNames, Worker
from django_reliable_jobs.schedules import ScheduleError, Timetable
from django_reliable_jobs.worker.maintenance.scheduler import ALIVE, Scheduler
from tests.support.factories import WorkerFactory
from tests.support.schedules.clock import DatabaseClock, utc
from tests.support.schedules.tools import NOOP, fired, row, schedule, sql, tick, worker

pytestmark = pytest.mark.django_db


class Host:
    """A worker with its row; `without` the time zones that it lacks."""

    def __init__(self, clock: DatabaseClock, *without: str, names: list[str] | None = None) -> None:
        self.scheduler = worker()
        self.without = without
        if names is not None:
            KnownNames.objects.get_or_create(digest="+".join(names), defaults={"names": names, "seen_at": clock.now})
        digest = "" if names is None else "+".join(names)
        WorkerFactory(id=self.scheduler.worker, last_seen=clock.now, names_digest=digest)

    def tick(self) -> float:
        real = firing.as_timetable

        def as_timetable(expression: str, zone: str) -> Timetable:
            if zone in self.without:
                raise ScheduleError(f"unknown time zone {zone!r}", "timezone")
            return real(expression, zone)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(firing, "as_timetable", as_timetable)
            return tick(self.scheduler)

    def seen(self, moment: datetime) -> None:
        Worker.objects.filter(pk=self.scheduler.worker).update(last_seen=moment)


ZONE = "Asia/Kathmandu"


@pytest.fixture
def report(clock: DatabaseClock) -> CronSchedule:
    found = schedule(expression="*/15 * * * *", timezone=ZONE)
    clock.set(utc("2026-07-01 12:15"))
    return found


@pytest.mark.parametrize("names", [None, [NOOP]], ids=["a worker that says no names", "one that knows the job"])
def test_the_host_that_looks_first_leaves_it_to_one_that_can(
    clock: DatabaseClock, report: CronSchedule, caplog: pytest.LogCaptureFixture, names: list[str] | None
) -> None:
    poor, other = Host(clock, ZONE), Host(clock, names=names)
    for _ in range(5):
        assert poor.tick() > 0
    assert not row().broken
    other.tick()
    assert fired() == ["07-01 12:15"]
    said = [line for line in caplog.messages if "schedule report" in line]
    assert said == [
        f"schedule report cannot be computed here, it is left to other workers: ScheduleError: unknown time zone '{ZONE}'"
    ]


def test_it_is_broken_when_all_that_live_have_said_so(clock: DatabaseClock, report: CronSchedule) -> None:
    one, other, third = Host(clock, ZONE), Host(clock, ZONE), Host(clock, ZONE)
    one.tick()
    other.tick()
    assert not row().broken
    third.tick()
    assert "unknown time zone" in row().broken


@pytest.mark.parametrize("kind", ["dead", "of another service"])
def test_a_worker_that_cannot_help_is_not_waited_for(clock: DatabaseClock, report: CronSchedule, kind: str) -> None:
    poor, other = Host(clock, ZONE), Host(clock, names=["billing.invoice"] if kind == "of another service" else None)
    if kind == "dead":
        other.seen(utc("2026-07-01 12:10"))
        assert ALIVE < 300
    poor.tick()
    assert row().broken


def test_an_edit_makes_what_was_said_before_void(clock: DatabaseClock, report: CronSchedule) -> None:
    one, other = Host(clock, ZONE), Host(clock, ZONE)
    one.tick()
    schedule(expression="*/5 * * * *", timezone=ZONE)
    one.seen(clock.advance(minutes=5))
    other.tick()
    assert not row().broken, "the first one has not seen this version"
    one.tick()
    assert row().broken


def test_a_host_that_can_compute_it_mends_what_another_has_marked(
    clock: DatabaseClock, report: CronSchedule, caplog: pytest.LogCaptureFixture
) -> None:
    """As an older version of this package marks it, at once."""
    Host(clock, ZONE).tick()
    assert row().broken
    clock.advance(minutes=30)
    good = Host(clock)
    good.tick()
    assert not row().broken
    assert fired() == ["07-01 12:45"], "what was missed is treated as the schedule says"
    assert "schedule report was marked broken by another worker; it can be computed here" in caplog.text


def test_a_row_that_nobody_can_compute_stays_broken(clock: DatabaseClock, report: CronSchedule) -> None:
    sql("UPDATE django_reliable_jobs_cronschedule SET timezone = 'Nowhere'")
    scheduler: Scheduler = worker()
    for _ in range(3):
        scheduler._mend_at = 0.0
        tick(scheduler)
        clock.advance(minutes=1)
    assert row().broken


def test_two_that_say_it_at_once_lose_neither(clock: DatabaseClock, report: CronSchedule) -> None:
    one, other = Host(clock, ZONE), Host(clock, ZONE)
    one.tick()
    other.tick()
    assert row().refused_by == {str(each.scheduler.worker): report.version for each in (one, other)}
