"""Twenty workers and sixty schedules, five minutes a second, with kills and stops: each fire time is taken once (C19)."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest
from django.db import connection

from django_reliable_jobs.models import CronRun, CronSchedule, Job
from tests.processes.schedules.test_workers import (
    LONG,
    ONLY_FIRE,
    START,
    assert_each_was_taken_once,
    make,
    nothing_is_due,
)
from tests.support.fleet import Fleet, wait_until
from tests.support.schedules.clock import ENVIRONMENT, DatabaseClock
from tests.support.schedules.tools import schedule

pytestmark = pytest.mark.slow

#: `SCHEDULE_SECONDS=300` for a long run; a second is five minutes on the database's clock.
SECONDS = float(os.environ.get("SCHEDULE_SECONDS", "20"))
FACTOR = 300.0
PODS, WORKERS_EACH = 5, 4

ZONES = ("UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Asia/Ho_Chi_Minh")
EXPRESSIONS = (
    "* * * * *", "*/5 * * * *", "0 * * * *", "30 1,2,3 * * *", "*/7 */2 * * *", "15-45/10 * * * *", "@hourly",
    "@every 90", "@every 7m", "@every 1h",
)  # fmt: skip
SCHEDULES = {
    f"{number} {expression}": (expression, ZONES[(number + number // 10) % len(ZONES)])
    for number, expression in enumerate(EXPRESSIONS * 6)
}


@contextmanager
def trouble(fleet: Fleet, dice: random.Random) -> Iterator[list[str]]:
    """Workers are killed, and stopped for a while, until the block is left."""
    over = threading.Event()
    done: list[str] = []

    def make_it() -> None:
        while not over.wait(dice.uniform(0.3, 1.0)):
            pod = dice.choice(fleet.workers)
            pids = [process.pid for process in pod.processes() if process.pid != pod.pid]
            if not pids:
                continue
            pid = dice.choice(pids)
            with suppress(ProcessLookupError):
                if dice.random() < 0.4:
                    os.kill(pid, signal.SIGKILL)
                    done.append("SIGKILL")
                else:
                    os.kill(pid, signal.SIGSTOP)
                    over.wait(dice.uniform(0.5, 3.0))
                    os.kill(pid, signal.SIGCONT)
                    done.append("SIGSTOP")

    thread = threading.Thread(target=make_it)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()


def test_every_fire_time_is_taken_once_whatever_happens_to_the_workers(fleet: Fleet, fast_clock: DatabaseClock) -> None:
    seed = int(os.environ.get("SCHEDULE_SEED", random.randrange(10**6)))
    fast_clock.set(START)
    assert len(SCHEDULES) == 60
    make(SCHEDULES)
    for _ in range(PODS):
        fleet.start(
            *ONLY_FIRE, "--processes", str(WORKERS_EACH), settings=LONG | {"POLL": 0.2}, env=ENVIRONMENT, ready=False
        )
    wait_until(lambda: all(len(pod.started()) >= WORKERS_EACH for pod in fleet.workers), "twenty workers", 120)
    fast_clock.set(START, FACTOR)
    began = time.monotonic()
    with trouble(fleet, random.Random(seed)) as done:
        while time.monotonic() - began < SECONDS:
            time.sleep(0.1)
    end = fast_clock.stop(ahead=timedelta(hours=1))
    wait_until(lambda: nothing_is_due(fast_clock), "all of it to be fired", 120)
    print(
        f"seed {seed}: {CronRun.objects.count()} runs, {Job.objects.count()} jobs up to {end},"
        f" {done.count('SIGKILL')} kills, {done.count('SIGSTOP')} stops,"
        f" by {CronRun.objects.values('fired_by').distinct().count()} workers"
    )
    assert_each_was_taken_once(SCHEDULES, end)
    assert {"SIGKILL", "SIGSTOP"} <= set(done) or SECONDS < 20
    for pod in fleet.workers:
        assert "IntegrityError" not in pod.text, pod.tail()
        assert "Traceback" not in pod.text, pod.tail()


def test_a_thousand_schedules_that_are_due_at_once_are_fired_in_no_time(fleet: Fleet) -> None:
    """By six workers. The promise is two seconds; how long it took is printed."""
    for _ in range(3):
        fleet.start(*ONLY_FIRE, "--processes", "2", settings={"LISTEN": False}, ready=False)
    wait_until(lambda: all(len(pod.started()) >= 2 for pod in fleet.workers), "six workers", 120)
    schedule("s", "0 0 1 1 *")
    with connection.cursor() as cursor:
        cursor.execute("""
            INSERT INTO django_reliable_jobs_cronschedule (name, job_name, expression, timezone, args, kwargs, source,
                misfire, misfire_grace, catch_up_window, catch_up_limit, overlap, jitter, paused, broken, version,
                fired_through, next_fire_at, resumed_at)
            SELECT 's' || n, 'probes.noop', '@every 10', 'UTC', '[]', '{}', '', 'latest', 60, 86400, 100,
                   CASE n % 2 WHEN 0 THEN 'allow' ELSE 'skip' END, 0, false, '', 1, at - interval '1 s', at,
                   at - interval '1 s'
              FROM generate_series(1, 1000) AS n,
                   (SELECT to_timestamp(ceil(extract(epoch FROM clock_timestamp() + interval '3 s') / 10) * 10) AS at)
                   AS moment""")
    first = CronSchedule.objects.get(name="s1").next_fire_at
    runs = CronRun.objects.filter(scheduled_for=first)
    wait_until(lambda: runs.count() == 1000, lambda: f"1,000 runs; there are {runs.count()}")
    CronSchedule.objects.update(paused=True)
    late = sorted(run.lateness for run in runs)
    print(
        f"1,000 schedules due at once, 6 workers: the first after {late[0]:.3f} s, half after {late[500]:.3f} s,"
        f" all after {late[-1]:.3f} s, by {runs.values('fired_by').distinct().count()} workers"
    )
    assert Job.objects.filter(scheduled_for=first).count() == 1000
    assert late[-1] < 30, "generous: on a machine that does nothing else it is below two"
