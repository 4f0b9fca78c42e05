"""A migration never waits for the workers: busy, idle or stopped, they hold no transaction of the app's own open.

`CREATE INDEX CONCURRENTLY` waits for every transaction that was there before it, `ALTER TABLE` for every one that has
touched the table. Both run here with `lock_timeout = 2s` on all tables of the app, while a fleet is at work.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

import psycopg
from django.apps import apps

from django_reliable_jobs.models import CronRun, Job, JobStatus, Worker
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.guards.app.jobs import uses_everything
from tests.support.look import all_done
from tests.support.probes import jobs as probes
from tests.support.schedules.tools import schedule

#: Seconds that a connection of the app may be idle in a transaction.
LIMIT = 1.0
LOCK_TIMEOUT = "2s"
MODELS = [model._meta for model in apps.get_app_config("django_reliable_jobs").get_models()]
TABLES = {str(model.db_table): str(model.pk.column) for model in MODELS if model.pk is not None}

#: Whatever handlers do outside of a transaction of their own: how long they take must not matter.
QUIET_JOBS = [probes.noop, probes.anoop, probes.note, probes.anote, probes.echo]


class Sampler:
    """Looks at all connections of the database but its own, again and again.

    `longest`: seconds for which one was idle in a transaction, and which. `stall`: the longest that the sampler itself
    was kept from looking, by a machine that has too much to do; a worker on it may be kept from its commit as long.
    """

    SESSIONS = (
        "SELECT extract(epoch FROM clock_timestamp() - state_change)::float, application_name, query"
        " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND state LIKE 'idle in transaction%'"
    )
    EVERY = 0.05

    def __init__(self, url: str) -> None:
        self.longest: tuple[float, str, str] = (0.0, "", "")
        self.stall = 0.0
        self.looks = 0
        self._over = threading.Event()
        self._connection = psycopg.connect(url, autocommit=True, application_name="the sampler")
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        last = time.monotonic()
        while not self._over.wait(self.EVERY):
            found = self._connection.execute(self.SESSIONS).fetchall()
            self.longest = max(self.longest, *found) if found else self.longest
            now = time.monotonic()
            self.stall, last = max(self.stall, now - last - self.EVERY), now
            self.looks += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._connection.close()

    def assert_nobody_was_idle_in_a_transaction(self) -> None:
        seconds, who, query = self.longest
        print(f"longest idle in a transaction: {seconds:.3f} s ({who}); {self.looks} looks, stall {self.stall:.3f} s")
        assert self.looks
        assert seconds <= LIMIT + self.stall, f"{who}: {seconds:.2f} s after {query}"


def change_every_table(url: str, sampler: Sampler, looks: int = 80) -> None:
    """As migrations of a later version might, again and again until the sampler has looked so often.

    Nothing is tried twice: a lock that is not there in time is an error.
    """
    took: list[tuple[float, str]] = []
    with psycopg.connect(url, autocommit=True, application_name="the migration") as connection:
        connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        while sampler.looks < looks:
            for table, key in TABLES.items():
                for statement in (
                    f"CREATE INDEX CONCURRENTLY later ON {table} ({key})",
                    f"ALTER TABLE {table} ADD COLUMN later integer",
                    f"ALTER TABLE {table} ALTER COLUMN later SET DEFAULT 1",
                    f"ALTER TABLE {table} ADD CONSTRAINT later_is_positive CHECK (later > 0) NOT VALID",
                    f"ALTER TABLE {table} VALIDATE CONSTRAINT later_is_positive",
                    "DROP INDEX CONCURRENTLY later",
                    f"ALTER TABLE {table} DROP COLUMN later",
                ):
                    began = time.monotonic()
                    try:
                        connection.execute(statement)
                    except psycopg.errors.LockNotAvailable as error:
                        raise AssertionError(f"{statement}: {error}; {_others(url)}") from error
                    took.append((time.monotonic() - began, statement))
    print(f"{len(took)} statements on {len(TABLES)} tables, the slowest {max(took)[0]:.2f} s: {max(took)[1]}")


def _others(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(
            "SELECT pid, application_name, state, clock_timestamp() - xact_start, query FROM pg_stat_activity"
            " WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"
        ).fetchall()


@contextmanager
def traffic(*jobs: object) -> Iterator[list[int]]:
    """Enqueues until the block is left, as much as the fleet can take; the ids."""
    over = threading.Event()
    ids: list[int] = []
    trouble: list[BaseException] = []

    def run() -> None:
        from django.db import connection

        try:
            while not over.wait(0.02):
                if Job.objects.filter(status__in=[JobStatus.QUEUED, JobStatus.FAILED]).count() < 60:
                    for job in jobs:
                        ids.extend(job.enqueue_many([(n,) for n in range(4)]))  # type: ignore[attr-defined]
        except BaseException as error:
            trouble.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ids
    finally:
        over.set()
        thread.join()
    assert trouble == []


def start_fleet(fleet: Fleet, schedules: int = 10) -> list[JobWorker]:
    """Two pods, three processes, with a listener and a scheduler in each."""
    for number in range(schedules):
        schedule(f"tick {number}", "@every 1", overlap=("allow", "skip", "queue")[number % 3])
    pods = [fleet.start("--slots", "4", "--processes", "2"), fleet.start("--slots", "4")]
    wait_until(lambda: sum(len(pod.started()) for pod in pods) == 3, "three workers")
    wait_until(lambda: Worker.objects.count() >= 3, "the workers to be there")
    wait_until(lambda: not schedules or CronRun.objects.exists(), "schedules to fire")
    return pods


def assert_nothing_went_wrong(pods: list[JobWorker]) -> None:
    for pod in pods:
        for sign in ("Traceback", "trouble", "maintenance failed"):
            assert sign not in pod.text, pod.tail()
        assert pod.stop() == 0


def test_a_busy_fleet_keeps_no_migration_waiting(fleet: Fleet, database_url: str) -> None:
    pods = start_fleet(fleet)
    long = [probes.nap.enqueue(300, "long"), probes.anap.enqueue(300, "long")]  # running, and holding nothing
    with Sampler(database_url) as sampler, traffic(*QUIET_JOBS, uses_everything) as ids:
        isolated = [probes.isolated.enqueue("ok"), probes.isolated_atomic.enqueue("isolated")]
        all_done(isolated)
        change_every_table(database_url, sampler)
        fired = CronRun.objects.count()
        wait_until(lambda: CronRun.objects.count() > fired + 10, "schedules to go on firing")
    assert len(ids) > 100
    all_done(ids)
    sampler.assert_nobody_was_idle_in_a_transaction()
    assert {Job.objects.get(pk=job.pk).status for job in long} == {JobStatus.RUNNING}
    for pod in pods:
        pod.tell(signal.SIGTERM)
        pod.tell(signal.SIGTERM)  # the long ones are not waited for
    assert [pod.wait() for pod in pods] == [0, 0]
    for pod in pods:
        assert "trouble" not in pod.text, pod.tail()


def test_an_idle_fleet_keeps_no_migration_waiting(fleet: Fleet, database_url: str) -> None:
    pods = start_fleet(fleet, schedules=0)
    with Sampler(database_url) as sampler:
        change_every_table(database_url, sampler)
    sampler.assert_nobody_was_idle_in_a_transaction()
    assert_nothing_went_wrong(pods)


def test_a_worker_that_stands_still_keeps_no_migration_waiting(fleet: Fleet, database_url: str) -> None:
    """Stopped at any moment, again and again: what the package itself does is one statement each, so that the server
    comes to its end alone. What handlers have open is theirs; these have nothing open."""
    pods = start_fleet(fleet)
    stopped = pods[1].worker_pid
    over = threading.Event()
    dice = random.Random(7)

    def stop_and_go() -> None:
        while not over.is_set():
            os.kill(stopped, signal.SIGSTOP)
            over.wait(dice.uniform(1.5, 2.5))
            os.kill(stopped, signal.SIGCONT)
            over.wait(dice.uniform(0.05, 0.3))

    thread = threading.Thread(target=stop_and_go)
    with Sampler(database_url) as sampler, traffic(*QUIET_JOBS) as ids:
        thread.start()
        try:
            change_every_table(database_url, sampler, looks=200)
        finally:
            over.set()
            thread.join()
            with suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGCONT)
    sampler.assert_nobody_was_idle_in_a_transaction()
    all_done(ids)
