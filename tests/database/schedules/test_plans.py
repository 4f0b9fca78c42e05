"""Finding out what is due costs two probes of one index, whatever the number of schedules, runs and jobs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, connections, transaction
from pytest_django import DjangoDbBlocker

from django_reliable_jobs.connections.own_connection import own_connection
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.models import CronRun, Job, JobStatus
from django_reliable_jobs.store import statements
from django_reliable_jobs.store.prune import prune, prune_runs
from django_reliable_jobs.store.schedules import due as schedule_due
from django_reliable_jobs.worker.maintenance.scheduler import Scheduler

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

SCHEDULES, RUNS, UNFINISHED, BACKLOG = 10_000, 200_000, 2_000, 50_000
TABLES = {"django_reliable_jobs_cronschedule", "django_reliable_jobs_cronrun", "django_reliable_jobs_job"}

ROWS = f"""
INSERT INTO django_reliable_jobs_cronschedule (name, job_name, expression, timezone, args, kwargs, source, misfire,
    misfire_grace, catch_up_window, catch_up_limit, overlap, jitter, pause_after_failures, paused, broken, version,
    fired_through, next_fire_at, resumed_at)
SELECT 'deep ' || n, 'probes.noop', '0 0 * * *', 'UTC', '[]', '{{}}', '', 'latest', 60, 86400, 100,
       CASE n % 2 WHEN 0 THEN 'allow' ELSE 'skip' END, 0, CASE n % 3 WHEN 0 THEN 3 END, n % 10 = 9, '', 1, now(),
       now() + interval '1 hour' + n * interval '1 s', now() - interval '900 days'
  FROM generate_series(1, {SCHEDULES}) AS n;
INSERT INTO django_reliable_jobs_job (id, name, queue, args, kwargs, status, reason, priority, run_at, attempts,
    max_attempts, losses, fencing_token, unique_until_start, scheduled_for, created_at, finished_at, schedule)
SELECT 1000000 + n, 'probes.noop', 'deep', '[]', '{{}}', CASE WHEN n <= {UNFINISHED} THEN 'QUEUED' ELSE 'DONE' END, '', 0,
       now(), 0, 5, 0, 0, false, now() - n * interval '1 minute', now(),
       CASE WHEN n > {UNFINISHED} THEN now() - n * interval '1 minute' END, 'deep ' || n % 50 + 1
  FROM generate_series(1, {RUNS}) AS n;
INSERT INTO django_reliable_jobs_job (id, name, queue, args, kwargs, status, reason, priority, run_at, attempts,
    max_attempts, losses, fencing_token, unique_until_start, scheduled_for, created_at, schedule)
SELECT 2000000 + n, 'probes.noop', 'deep', '[]', '{{}}', 'QUEUED', '', 0, now(), 0, 5, 0, 0, false,
       now() - n * interval '1 minute', now(), 'busy'
  FROM generate_series(1, {BACKLOG}) AS n;
INSERT INTO django_reliable_jobs_cronrun (name, scheduled_for, outcome, detail, skipped_count, job_id, job_status,
    fired_at, manual)
SELECT 'deep ' || n % 50 + 1, now() - n * interval '1 minute', 'enqueued', '', 0, 1000000 + n, '',
       now() - n * interval '1 minute', false
  FROM generate_series(1, {RUNS}) AS n
"""


@pytest.fixture(scope="module")
def _deep_tables(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock():
        execute(ROWS)
        for table in TABLES:
            execute(f"VACUUM ANALYZE {table}")
        yield
        execute(f"TRUNCATE {', '.join(TABLES)} CASCADE")


@pytest.fixture(autouse=True)
def _rolled_back(_deep_tables: None, db: None) -> Iterator[None]:
    """On a connection as the maintenance thread has it."""
    of_the_tests = connections["default"]
    with own_connection("default", "test"), transaction.atomic():
        yield
        transaction.set_rollback(True)
    connections["default"] = of_the_tests


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


class Seen:
    """What a statement did: how the tables were read, the pages it touched, and its time on the server in ms."""

    def __init__(self, name: str, **params: Any) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statements.load(name)}", params)
            found = cursor.fetchone()[0]
            transaction.set_rollback(True)
        [plan] = json.loads(found) if isinstance(found, str) else found
        if os.environ.get("SHOW_PLANS"):
            print(name, json.dumps(plan, indent=1))
        nodes = list(_walk(plan["Plan"]))
        self.sequential = {n["Relation Name"] for n in nodes if n["Node Type"] == "Seq Scan" and n["Actual Loops"]}
        self.indexes = {n["Index Name"] for n in nodes if "Index Name" in n and n["Actual Loops"]}
        self.pages = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
        self.milliseconds = plan["Execution Time"]


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


def look() -> Seen:
    params = {"known": registry.names(), "within": schedule_due.WITHIN, "batch": 50, "most": schedule_due.MOST_OPEN}
    return Seen("schedules/due", **params, aside_ids=[1], aside_versions=[0])


def in_step() -> Scheduler:
    """One that has synced a moment ago (which it does in a transaction of its own)."""
    scheduler = Scheduler("default", uuid4())
    scheduler._sync._look_at = float("inf")
    return scheduler


def make_due(count: int) -> None:
    execute(
        "UPDATE django_reliable_jobs_cronschedule SET next_fire_at = now() - interval '1 s',"
        " fired_through = now() - interval '24 hours' WHERE id IN ("
        f" SELECT id FROM django_reliable_jobs_cronschedule WHERE NOT paused ORDER BY id LIMIT {count})"
    )


def test_an_idle_look_is_two_probes_of_one_index() -> None:
    seen = look()
    assert not seen.sequential & TABLES
    assert seen.indexes == {"reliable_jobs_due"}
    assert seen.pages < 30


def test_an_idle_tick_takes_little_of_the_databases_time() -> None:
    scheduler = in_step()
    times = sorted(look().milliseconds for _ in range(20))
    began = time.perf_counter()
    for _ in range(50):
        assert scheduler.tick() > 0
    print(f"idle look: {times[10]:.3f} ms on the server, tick {(time.perf_counter() - began) * 20:.2f} ms in all")
    assert times[10] < 20, "generous: it is some 0.1 ms on a quiet machine, the promise is 2 ms"


def test_what_is_due_is_found_by_indexes() -> None:
    make_due(200)
    seen = look()
    assert not seen.sequential & TABLES
    assert {"reliable_jobs_due", "reliable_jobs_of_schedule"} <= seen.indexes
    # Of those that are due the unfinished jobs are read, by one index; other schedules' backlog and all runs are not (P34).
    assert seen.pages < 3 * UNFINISHED


def test_jobs_without_the_name_of_their_schedule_are_found_by_their_runs() -> None:
    """A worker of an older version enqueued them: they are read once, by two indexes, and nothing else is."""
    execute(
        "UPDATE django_reliable_jobs_job SET schedule = NULL WHERE status = 'QUEUED' AND schedule <> 'busy'"
        " AND scheduled_for IS NOT NULL"
    )
    make_due(200)
    seen = look()
    assert not seen.sequential & TABLES
    assert {"reliable_jobs_of_schedule", "reliable_jobs_run_job"} <= seen.indexes
    assert seen.pages < 15 * UNFINISHED


def test_what_is_marked_broken_is_found_by_an_index() -> None:
    seen = Seen("schedules/broken_ones", known=registry.names())
    assert not seen.sequential & TABLES
    assert seen.indexes == {"reliable_jobs_broken"}
    assert seen.pages < 10


def test_firing_reads_what_it_writes() -> None:
    make_due(200)
    # At midnight two fire times may be due; the older one is then a row of its own, skipped.
    fired = CronRun.objects.exclude(outcome="skipped_misfire")
    before = (fired.count(), Job.objects.count())
    scheduler = in_step()
    for _ in range(50):
        if scheduler.tick() > 0:
            break
    assert fired.count() - before[0] == 200
    assert Job.objects.count() - before[1] > 100


def test_pruning_jobs_finds_their_runs_by_an_index() -> None:
    seen = Seen("prune", status="DONE", age=3600.0, batch=500)
    assert not seen.sequential & TABLES
    assert "reliable_jobs_run_job" in seen.indexes
    assert prune("default", JobStatus.DONE, 3600, 500) == 500


def test_pruning_runs_takes_a_batch_and_leaves_the_rest_unread() -> None:
    seen = Seen("prune_runs", age=90_000.0 * 60, batch=500)
    assert not seen.sequential & TABLES
    assert "reliable_jobs_run_fired" in seen.indexes
    assert seen.pages < 500 * 60
    assert prune_runs("default", 90_000 * 60, 500) == 500
