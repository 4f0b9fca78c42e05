"""Connections die; the worker does not (cases D01, D02, P38). On servers of its own, since it restarts them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import psycopg
import pytest

from testproject.postgres import PROJECT_ROOT, EmbeddedPostgres
from tests.support.fleet import Fleet, JobWorker, wait_until


class Elsewhere:
    """A server and a database that only this module uses; the test process itself is connected to another one."""

    def __init__(self, server: EmbeddedPostgres, fleet: Fleet) -> None:
        self.server = server
        self.fleet = fleet
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None

    def sql(self, statement: str, params: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        for last in (False, True):
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self.fleet.env["DATABASE_URL"], autocommit=True)
            try:
                cursor = self._connection.execute(statement, params)
                return cursor.fetchall() if cursor.description else []
            except psycopg.OperationalError:  # of the last outage
                self._connection.close()
                if last:
                    raise
        raise AssertionError

    def enqueue(self, name: str, args: str = "[]", count: int = 1) -> list[int]:
        rows = self.sql(
            "INSERT INTO django_reliable_jobs_job (name, queue, args, kwargs, status, reason, priority, run_at, attempts,"
            " max_attempts, losses, timeout, fencing_token, unique_until_start, created_at)"
            " SELECT %s, 'default', %s::jsonb, '{}', 'QUEUED', '', 0, now(), 0, 5, 0, 60, 0, false, now()"
            " FROM generate_series(1, %s) RETURNING id",
            (name, args, count),
        )
        return [int(str(row[0])) for row in rows]

    def jobs(self, ids: list[int]) -> list[tuple[object, ...]]:
        return self.sql(
            "SELECT status, attempts, losses, name FROM django_reliable_jobs_job WHERE id = ANY (%s) ORDER BY id",
            (ids,),
        )

    def all_done(self, ids: list[int], worker: JobWorker, timeout: float = 60) -> None:
        wait_until(
            lambda: {row[0] for row in self.jobs(ids)} == {"DONE"}, lambda: f"{self.jobs(ids)} {worker.tail()}", timeout
        )

    def backends(self) -> list[int]:
        rows = self.sql("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                        " AND backend_type = 'client backend'")  # fmt: skip
        return [int(str(row[0])) for row in rows]

    def kill_all_backends(self) -> int:
        return len([pid for pid in self.backends() if self.sql("SELECT pg_terminate_backend(%s)", (pid,))])

    def sleeping(self) -> int:
        """How many handlers are in the middle of their query."""
        rows = self.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                        " AND state = 'active' AND query LIKE 'SELECT pg_sleep%%'")  # fmt: skip
        return int(str(rows[0][0]))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    with EmbeddedPostgres(fast=True, tcp=True) as server:
        env = {**os.environ, "DATABASE_URL": server.create_database("elsewhere"), "PYTHONPATH": str(PROJECT_ROOT)}
        fleet = Fleet(env, tmp_path_factory.mktemp("elsewhere"))
        migrated = fleet.run([sys.executable, "manage.py", "migrate", "-v0"], ready=False)
        assert migrated.wait() == 0, migrated.tail()
        yield Elsewhere(server, fleet)
        fleet.close()


@pytest.fixture(scope="module", params=["0", "none"], ids=["CONN_MAX_AGE=0", "CONN_MAX_AGE=None"])
def worker(request: pytest.FixtureRequest, elsewhere: Elsewhere) -> Iterator[JobWorker]:
    settings = {"LEASE": 6, "HEARTBEAT": 1, "POLL": 0.5, "BACKOFF": {"base": 0.1, "factor": 1, "cap": 0.5}}
    started = elsewhere.fleet.start("--slots", "4", settings=settings, env={"TEST_CONN_MAX_AGE": request.param})
    elsewhere.all_done(elsewhere.enqueue("probes.note", '["first"]', 8), started)
    yield started
    assert started.stop() == 0, started.tail()
    # It is replaced when it is idle and had to stop handlers whose leases were lost; it never broke.
    assert "another takes its place" not in started.text, started.tail()


def test_an_idle_worker_whose_backends_are_killed_goes_on(elsewhere: Elsewhere, worker: JobWorker) -> None:
    for _ in range(3):
        assert elsewhere.kill_all_backends() > 0
        notes = elsewhere.enqueue("probes.note", '["after a kill"]', 12)
        elsewhere.all_done(notes, worker)
        assert {row[1] for row in elsewhere.jobs(notes)} == {1}, "no attempt was lost to a dead idle connection"


def test_running_jobs_whose_backends_are_killed_are_tried_again_and_used_no_attempt(
    elsewhere: Elsewhere, worker: JobWorker
) -> None:
    running = elsewhere.enqueue("probes.busy", '["query", 3]', 4)
    wait_until(lambda: elsewhere.sleeping() == 4, worker.tail)
    assert elsewhere.kill_all_backends() > 0
    notes = elsewhere.enqueue("probes.note", '["next"]', 12) + elsewhere.enqueue("probes.anote", '["next"]', 12)
    elsewhere.all_done([*running, *notes], worker)
    assert {row[2] for row in elsewhere.jobs(running)} == {0}, "the worker kept its leases"
    assert {row[1] for row in elsewhere.jobs(running)} == {1}
    assert {row[1] for row in elsewhere.jobs(notes)} == {1}


def test_a_server_that_takes_no_writes_for_a_while_costs_no_attempt_and_no_job(
    elsewhere: Elsewhere, worker: JobWorker
) -> None:
    """Case D04: a failover through which every connection stays open, the worker's own too."""
    running = elsewhere.enqueue("probes.nap", "[1.5]", 2) + elsewhere.enqueue("probes.anap", "[1.5]", 2)
    begun = "SELECT count(DISTINCT job_id) FROM probes_mark WHERE label = 'nap begins' AND job_id = ANY (%s)"
    wait_until(lambda: elsewhere.sql(begun, (running,))[0][0] == 4, worker.tail)
    said = worker.text.count("read-only transaction")
    elsewhere.sql("ALTER SYSTEM SET default_transaction_read_only = on")
    try:
        elsewhere.sql("SELECT pg_reload_conf()")
        wait_until(lambda: worker.text.count("read-only transaction") > said, worker.tail)
        time.sleep(2)  # the handlers come to their writes, and the engine to its settles
    finally:
        elsewhere.sql("ALTER SYSTEM RESET default_transaction_read_only")
        elsewhere.sql("SELECT pg_reload_conf()")
    # The server takes its settings up when it comes to it.
    wait_until(lambda: elsewhere.sql("SHOW default_transaction_read_only") == [("off",)], worker.tail)
    notes = elsewhere.enqueue("probes.note", '["after the failover"]', 8)
    elsewhere.all_done([*running, *notes], worker, timeout=90)
    assert {row[1] for row in elsewhere.jobs([*running, *notes])} == {1}, worker.tail()
    assert {row[2] for row in elsewhere.jobs([*running, *notes])} == {0}


def test_killing_everything_again_and_again_loses_nothing(elsewhere: Elsewhere, worker: JobWorker) -> None:
    ids = elsewhere.enqueue("probes.note", '["storm"]', 300) + elsewhere.enqueue("probes.anote", '["storm"]', 100)
    kills = 0

    def done() -> bool:
        nonlocal kills
        elsewhere.kill_all_backends()
        kills += 1
        return kills > 10

    wait_until(done, worker.tail)
    # From the fourth time on it is an attempt of the job that a killed backend ran; five may not be enough for all of them.
    elsewhere.sql("UPDATE django_reliable_jobs_job SET max_attempts = NULL WHERE status <> 'DEAD'")
    wait_until(lambda: {row[0] for row in elsewhere.jobs(ids)} <= {"DONE", "DEAD"}, lambda: str(elsewhere.jobs(ids)))
    assert {row[2] for row in elsewhere.jobs(ids)} == {0}, worker.tail()


def test_after_an_immediate_restart_of_the_server_the_worker_takes_jobs(
    elsewhere: Elsewhere, worker: JobWorker
) -> None:
    running = elsewhere.enqueue("probes.nap", '[3, "restart"]', 2) + elsewhere.enqueue("probes.anap", "[3]", 1)
    wait_until(lambda: {row[0] for row in elsewhere.jobs(running)} == {"RUNNING"}, worker.tail)
    elsewhere.server.restart("immediate")
    notes = elsewhere.enqueue("probes.note", '["after the restart"]', 12)
    elsewhere.all_done([*notes, *running], worker)
    assert {row[1] for row in elsewhere.jobs(notes)} == {1}
    assert {row[2] for row in elsewhere.jobs(running)} == {0}


def test_an_outage_longer_than_the_lease_burns_no_attempt_of_what_was_not_running(
    elsewhere: Elsewhere, worker: JobWorker
) -> None:
    """And nobody reaps right after it: whoever comes back first must not take everything."""
    waiting = elsewhere.enqueue("probes.note", '["outage"]', 4)
    elsewhere.all_done(waiting, worker)
    processes = len(worker.started())
    said = [worker.text.count(line) for line in ("database error", "the database answers again")]
    with elsewhere.server.outage("immediate"):
        time.sleep(8)  # longer than the lease: how long the outage is, is what is tested
        assert worker.process.poll() is None
    notes = elsewhere.enqueue("probes.note", '["after the outage"]', 12)
    elsewhere.all_done(notes, worker)
    assert {(row[1], row[2]) for row in elsewhere.jobs(notes)} == {(1, 0)}
    assert len(worker.started()) == processes, "an outage is no standing still"
    again = [worker.text.count(line) for line in ("database error", "the database answers again")]
    assert max(now - before for now, before in zip(again, said, strict=True)) <= 1, worker.tail()


@pytest.mark.parametrize("slots", ["idle", "all busy"])
def test_an_outage_and_its_end_are_said_once_each(elsewhere: Elsewhere, slots: str) -> None:
    """Case P38, also where only the heartbeat notices."""
    started = elsewhere.fleet.start("--slots", "1", settings={"LISTEN": False, "LEASE": 3, "HEARTBEAT": 1})
    if slots == "all busy":
        job = elsewhere.enqueue("probes.nap", "[600]")
        wait_until(lambda: elsewhere.jobs(job)[0][0] == "RUNNING", started.tail)
    else:
        elsewhere.all_done(elsewhere.enqueue("probes.note", '["before"]'), started)
    with elsewhere.server.outage("immediate"):
        started.logged("database error")
        time.sleep(5 * 3)  # leases: how long the outage is, is what is tested
    started.logged("the database answers again, after")
    elsewhere.all_done(elsewhere.enqueue("probes.note", '["after"]'), elsewhere.fleet.start("--slots", "1"))
    assert not {line for line in ("has not moved", "stood still") if line in started.text}, started.tail()
    for line in ("database error", "the database answers again"):
        assert started.text.count(line) == 1, started.tail()
    assert started.stop() == 0


def test_a_worker_that_starts_during_an_outage_begins_after_it(elsewhere: Elsewhere) -> None:
    with elsewhere.server.outage("fast"):
        started = elsewhere.fleet.start("--slots", "2")
        started.logged("the database cannot be reached")
    elsewhere.all_done(elsewhere.enqueue("probes.note", '["at last"]', 4), started)
    assert started.stop() == 0


def test_a_worker_stops_during_an_outage_too(elsewhere: Elsewhere) -> None:
    started = elsewhere.fleet.start("--slots", "2", "--grace", "1")
    job = elsewhere.enqueue("probes.nap", "[120]")
    wait_until(lambda: elsewhere.jobs(job)[0][0] == "RUNNING", started.tail)
    with elsewhere.server.outage("immediate"):
        started.tell()
        started.wait(timeout=60)
    elsewhere.sql("DELETE FROM django_reliable_jobs_job WHERE id = ANY (%s)", (job,))
