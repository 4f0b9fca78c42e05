"""Schedules and real workers: killed in between, on hosts whose clocks are wrong, busy with something else."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_reliable_jobs.models import CronRun, CronSchedule, Job
from django_reliable_jobs.schedules import next_fires
from testproject.postgres import PROJECT_ROOT
from tests.support.fleet import Fleet, wait_until
from tests.support.look import marked
from tests.support.probes import jobs as probes
from tests.support.schedules.clock import ENVIRONMENT, DatabaseClock, utc
from tests.support.schedules.tools import fired, row, runs, schedule, sql
from tests.support.sessions import Session

START = utc("2026-10-24 22:00")
#: Leases in a database whose time runs fast have to be long.
LONG = {"LEASE": 360_000, "HEARTBEAT": 1, "POLL": 0.05, "LISTEN": False}
#: A queue that nobody fills: these workers only fire.
ONLY_FIRE = ("--queues", "nothing", "--slots", "1")

HERE = PROJECT_ROOT / "tests" / "support" / "schedules"


def expected(schedules: dict[str, tuple[str, str]], start: datetime, end: datetime) -> set[tuple[str, datetime]]:
    """Every fire time in (`start`, `end`], by the function that the preview asks."""
    found = set()
    for name, (expression, zone) in schedules.items():
        moment = start
        while (moment := next_fires(expression, zone, moment)[0]) <= end:
            found.add((name, moment))
    return found


def make(schedules: dict[str, tuple[str, str]]) -> None:
    """Each of whose fire times is to be taken, however late; counted from START."""
    for name, (expression, zone) in schedules.items():
        schedule(
            name, expression, timezone=zone, misfire="all", catch_up_window=timedelta(days=30), catch_up_limit=10_000
        )
    CronSchedule.objects.update(fired_through=START, next_fire_at=START, resumed_at=START)


def nothing_is_due(clock: DatabaseClock) -> bool:
    return not CronSchedule.objects.filter(next_fire_at__lte=clock.now).exists()


def assert_each_was_taken_once(schedules: dict[str, tuple[str, str]], end: datetime) -> None:
    wanted = expected(schedules, START, end)
    taken = Counter(CronRun.objects.values_list("name", "scheduled_for"))
    assert set(taken) == wanted
    assert set(taken.values()) == {1}
    assert set(CronRun.objects.values_list("outcome", flat=True)) == {"enqueued"}
    assert sorted(CronRun.objects.values_list("job_id", flat=True)) == sorted(Job.objects.values_list("id", flat=True))


def host_clock(days: int, how: str) -> dict[str, str]:
    """A process whose wall clock is so many days off. Where there is no libfaketime `time.time` has to do."""
    libraries = list(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")) if how == "libfaketime" else []
    if libraries:
        return {"LD_PRELOAD": str(libraries[0]), "FAKETIME": f"{days:+d}d", "DONT_FAKE_MONOTONIC": "1"}
    path = f"{HERE / 'host_clock'}{os.pathsep}{HERE.parent.parent}"
    return {"PYTHONPATH": path, "HOST_CLOCK_OFF": str(days * 86_400)}


@pytest.mark.parametrize("how", ["libfaketime", "time.time"])
def test_wrong_clocks_of_hosts_change_nothing(fleet: Fleet, fast_clock: DatabaseClock, how: str) -> None:
    """C22: two days slow, two days fast, and right, over a night when the clocks of Paris change."""
    schedules = {
        "minutely": ("* * * * *", "UTC"), "paris": ("20 2 * * *", "Europe/Paris"), "every": ("@every 7m", "UTC"),
        "hourly": ("0 * * * *", "America/New_York"),
    }  # fmt: skip
    fast_clock.set(START)
    make(schedules)
    for days in (-2, 0, 2):
        fleet.start(*ONLY_FIRE, settings=LONG, env=ENVIRONMENT | (host_clock(days, how) if days else {}), ready=False)
    for worker in fleet.workers:
        worker.ready()
    fast_clock.set(START, factor=1800)
    wait_until(lambda: CronRun.objects.filter(name="paris").exists(), "half past two in Paris")
    end = fast_clock.stop(ahead=timedelta(hours=6))
    wait_until(lambda: nothing_is_due(fast_clock), "all of it to be fired")
    assert_each_was_taken_once(schedules, end)
    assert len({run.fired_by for run in CronRun.objects.all()}) > 1, "more than one of them took part"
    for worker, days in zip(fleet.workers, (-2, 0, 2), strict=True):
        assert worker.process.poll() is None, worker.tail()
        said_at = datetime.fromisoformat(worker.text[:19]).astimezone(UTC)
        assert (said_at - datetime.now(UTC)).total_seconds() / 86_400 == pytest.approx(days, abs=0.1), "it is off"


def test_a_worker_is_killed_between_the_run_and_its_job(fleet: Fleet) -> None:
    """C20: the statement is the server's by then: both are there when it has ended, and nobody fires it again."""
    schedule("report", "@every 1h")
    with waiting_trigger() as keeper:
        worker = fleet.start(settings={"LEASE": 20, "HEARTBEAT": 2})
        CronSchedule.objects.update(fired_through=utc("2026-01-01 00:00"), next_fire_at=utc("2026-01-01 00:00"))
        wait_until(lambda: sql("SELECT 1 FROM pg_locks WHERE objid = 4713 AND NOT granted"), worker.tail)
        os.kill(worker.worker_pid, signal.SIGKILL)
        assert not CronRun.objects.exists()
        keeper.sql("SELECT pg_advisory_unlock(4713)")
        wait_until(lambda: CronRun.objects.filter(outcome="enqueued").exists(), worker.tail)
    made = CronRun.objects.get(outcome="enqueued")
    assert Job.objects.get().pk == made.job_id
    assert row().fired_through == made.scheduled_for
    wait_until(lambda: len(worker.started()) > 1, "the next process")
    probes.note.enqueue("alive")
    marked("alive")
    assert Job.objects.filter(name="probes.noop").count() == 1


@contextmanager
def waiting_trigger() -> Iterator[Session]:
    """The INSERT of a scheduled job waits until the lock is given back."""
    with Session() as keeper:
        keeper.sql("SELECT pg_advisory_lock(4713)")
        sql("""
            CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                PERFORM set_config('lock_timeout', '0', true);
                PERFORM pg_advisory_xact_lock_shared(4713);
                RETURN NEW;
            END $$""")
        sql(
            "CREATE TRIGGER hold_up BEFORE INSERT ON django_reliable_jobs_job FOR EACH ROW"
            " WHEN (NEW.scheduled_for IS NOT NULL) EXECUTE FUNCTION hold_up()"
        )
        try:
            yield keeper
        finally:
            keeper.sql("SELECT pg_advisory_unlock_all()")
            sql("DROP TRIGGER hold_up ON django_reliable_jobs_job")
            sql("DROP FUNCTION hold_up")


def test_a_handler_that_takes_long_holds_up_no_fire(fleet: Fleet) -> None:
    """C25: the only slot is busy; fire times are taken meanwhile, and their jobs wait."""
    worker = fleet.start("--slots", "1")
    probes.meet.enqueue("long")
    marked("long begins")
    schedule("often", "@every 1s", job="probes.note", args=["fired"])
    wait_until(lambda: len(runs("often")) >= 3, worker.tail)
    taken = runs("often")
    assert all(run.outcome == "enqueued" and run.status == "QUEUED" for run in taken)
    assert [(b.scheduled_for - a.scheduled_for).total_seconds() for a, b in zip(taken, taken[1:], strict=False)] == [
        1.0
    ] * (len(taken) - 1)
    CronSchedule.objects.update(paused=True)
    probes.Mark.objects.create(label="long go")
    marked("fired", 3)


def test_the_handler_of_a_scheduled_job_sees_its_fire_time(fleet: Fleet) -> None:
    schedule("told", "@every 1s", job="probes.tells_fire_time")
    worker = fleet.start()
    wait_until(lambda: Job.objects.filter(status="DONE").exists(), worker.tail)
    CronSchedule.objects.update(paused=True)
    job = Job.objects.filter(status="DONE")[0]
    assert job.value == [job.scheduled_for, job.scheduled_for]
    assert fired("told")


def test_an_outage_of_the_database_loses_no_fire_time(fleet: Fleet, postgres: Any) -> None:
    schedule("often", "@every 1s", misfire="all")
    worker = fleet.start(*ONLY_FIRE)
    wait_until(lambda: runs("often"), worker.tail)
    postgres.restart("immediate")
    connection.close()
    before = len(runs("often"))
    wait_until(lambda: len(runs("often")) > before + 2, worker.tail)
    CronSchedule.objects.update(paused=True)
    times = [run.scheduled_for for run in runs("often", outcome="enqueued")]
    assert [(b - a).total_seconds() for a, b in zip(times, times[1:], strict=False)] == [1.0] * (len(times) - 1)
