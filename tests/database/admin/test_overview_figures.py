"""The figures that the overview is made of: right, bounded, and by the database's clock."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.utils import timezone

from django_reliable_jobs.models import CronRun, CronSchedule, JobStatus
from django_reliable_jobs.operations import reading
from django_reliable_jobs.operations.overview import queues as overview_queues
from django_reliable_jobs.operations.overview import slices as overview_slices
from django_reliable_jobs.operations.overview.figures import Overview, WorkerFigures, overview
from django_reliable_jobs.operations.overview.queues import Count, QueueFigures
from django_reliable_jobs.operations.overview.schedules import RunState
from tests.support.factories import JobAttemptFactory, JobFactory, QueueStateFactory, WorkerFactory, ago
from tests.support.schedules.tools import schedule

pytestmark = pytest.mark.django_db


def queue(name: str = "default", found: Overview | None = None) -> QueueFigures:
    return next(each for each in (found or overview()).queues if each.name == name)


def test_a_queue_has_its_counts() -> None:
    JobFactory.create_batch(3)
    JobFactory.create_batch(2, priority=10)
    JobFactory(run_at=ago(-600))
    JobFactory(failed=True, run_at=ago(-60))
    JobFactory(failed=True, run_at=ago(5))
    JobFactory.create_batch(2, running=True)
    JobFactory(running=True, locked_until=ago(1))
    JobFactory(dead=True, finished_at=ago(7200))
    JobFactory.create_batch(2, dead=True, finished_at=ago(100))
    JobFactory(queue="mail")
    QueueStateFactory(queue="mail")
    found = overview(queues=["idle"])
    assert [(each.name, each.paused) for each in found.queues] == [("default", False), ("idle", False), ("mail", True)]
    default = queue(found=found)
    assert (default.ready, default.failed, default.running) == (Count(6), Count(2), Count(3))
    assert (default.dead, default.dead_lately, default.lost) == (Count(3), 2, 1)
    assert 60 <= (default.oldest or 0) < 120
    assert 100 <= (default.last_death or 0) < 160
    assert queue("idle", found) == QueueFigures("idle")


def test_what_is_not_due_has_no_age() -> None:
    JobFactory(run_at=ago(-600))
    assert (queue().ready, queue().oldest) == (Count(0), None)


def test_counts_stop_at_their_bound_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_queues, "MOST_EACH", 3)
    for what in ("MOST_RUNNING", "MOST_FAILED", "MOST_DEAD"):
        monkeypatch.setattr(overview_queues, what, 2)
    JobFactory.create_batch(5)
    JobFactory.create_batch(4, priority=1)
    JobFactory.create_batch(2, running=True)
    JobFactory.create_batch(3, failed=True, run_at=ago(-60))
    JobFactory.create_batch(4, dead=True)
    found = queue()
    assert (found.ready, found.running) == (Count(6, True), Count(2))
    assert (found.failed, found.dead) == (Count(3, True), Count(3, True))


def test_where_there_are_more_queues_and_priorities_than_are_looked_at_the_counts_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overview_queues, "PAIRS", 2)
    for priority in range(3):
        JobFactory(priority=priority)
    assert queue().ready == Count(2, True)


def test_of_too_many_queues_the_busy_ones_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_reliable_jobs.operations.overview.figures.MOST_QUEUES", 3)
    JobFactory(queue="m")
    JobFactory(queue="z", dead=True)
    found = overview(queues=["a", "b", "c"])
    assert [each.name for each in found.queues] == ["a", "m", "z"]
    assert found.more_queues


def test_the_last_hour_in_slices() -> None:
    now = timezone.now()
    for seconds in (5, 130, 131, 3000, 4000):
        JobFactory(done=True, finished_at=now - timedelta(seconds=seconds))
    hour = queue().hour
    assert (hour.done_total, len(hour.done), hour.estimated, hour.failure_rate) == (4, 30, False, 0.0)
    assert max(hour.done) in (1, 2), "130 and 131 seconds ago may be on two sides of a border"
    JobAttemptFactory(finished_at=now)
    JobAttemptFactory(finished_at=now, status=JobStatus.DEAD, job__status=JobStatus.DEAD)
    JobAttemptFactory(finished_at=now, status=JobStatus.QUEUED, reason="lost")
    JobAttemptFactory(finished_at=now, status=JobStatus.CANCELLED)
    JobAttemptFactory(finished_at=now - timedelta(hours=2))
    hour = queue().hour
    assert (hour.failed_total, hour.failed_capped, hour.failure_rate) == (3, False, 3 / 7)


def test_a_busy_slice_is_estimated_from_its_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_slices, "SAMPLE", 60)
    slices_ago = 10 * overview_slices.WIDTH
    start = timezone.now().timestamp() // overview_slices.WIDTH * overview_slices.WIDTH - slices_ago
    begin = timezone.now() - timedelta(seconds=timezone.now().timestamp() - start)
    for number in range(120):  # one a second
        JobFactory(done=True, finished_at=begin + timedelta(seconds=number), queue=("a", "b")[number % 2])
    found = overview()
    hours = [queue(name, found).hour for name in "ab"]
    assert all(hour.estimated for hour in hours)
    assert 115 <= sum(hour.done_total for hour in hours) <= 125


def test_of_too_many_attempts_only_the_newest_slices_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_slices, "MOST_ATTEMPTS", 5)
    for seconds in range(3000, 0, -300):
        JobAttemptFactory(finished_at=ago(seconds))
    hour = queue().hour
    assert hour.failed_capped
    assert hour.failed[0] is None
    assert hour.failed[-1] is not None
    assert 0 < hour.failed_total <= 5
    assert hour.failure_rate == 1.0


def test_workers_are_stale_after_a_lease_and_show_what_they_hold() -> None:
    alive, gone = WorkerFactory(host="a"), WorkerFactory(host="b", last_seen=ago(31))
    JobFactory.create_batch(2, running=True, locked_by=alive.pk)
    found = overview()
    assert [(each.host, each.stale, each.running) for each in found.workers] == [("a", False, 2), ("b", True, 0)]
    assert [each.id for each in found.at_work] == [alive.pk]
    assert found.workers[1].id == gone.pk
    assert 31 <= found.workers[1].unseen < 90


@pytest.mark.parametrize(
    ("queues", "mail", "stock"),
    [
        ("all queues", True, True),
        ("all queues but mail", False, True),
        ("mail:4, default", True, False),
        ("default, mail-2", False, False),
        ("x" * 500, True, True),
        ("", True, True),
    ],
)
def test_which_queues_a_worker_serves(queues: str, mail: bool, stock: bool) -> None:
    now = timezone.now()
    worker = WorkerFigures(UUID(int=1), "h", 1, "0", queues, 8, 0, False, "", now, 0.0, 0.0, False, 0)
    assert (worker.serves("mail"), worker.serves("stock")) == (mail, stock)


def test_schedules_come_with_their_last_runs() -> None:
    made = schedule()
    dead = JobFactory(dead=True)
    for minutes, values in enumerate(
        [
            {"outcome": "enqueued", "job_id": JobFactory(done=True).pk},
            {"outcome": "enqueued", "job_id": 10**12, "job_status": "DONE"},
            {"outcome": "enqueued", "job_id": 10**12 + 1},
            {"outcome": "skipped_misfire", "skipped_count": 7},
            {"outcome": "error"},
            {"outcome": "enqueued", "job_id": JobFactory(failed=True).pk},
            {"outcome": "enqueued", "job_id": dead.pk},
        ]
    ):
        CronRun.objects.create(name=made.name, scheduled_for=ago(6000 - minutes), fired_at=ago(0), **values)
    [found] = overview().schedules
    states = [run.state for run in found.runs]
    assert states == [
        RunState.DONE, RunState.DONE, RunState.GONE, RunState.SKIPPED, RunState.ERROR, RunState.FAILING, RunState.DEAD,
    ]  # fmt: skip
    assert found.last_run is not None
    assert found.last_run.status == "DEAD"


def test_at_most_thirty_runs_and_those_of_the_schedule_alone() -> None:
    schedule(name="a")
    schedule(name="b")
    for number in range(40):
        CronRun.objects.create(name="a", scheduled_for=ago(number), fired_at=ago(0), outcome="error")
    first, second = overview().schedules
    assert (len(first.runs), len(second.runs)) == (30, 0)
    assert first.runs[0].scheduled_for < first.runs[-1].scheduled_for


def test_schedules_that_need_a_person_come_first() -> None:
    for name in "abcd":
        schedule(name=name)
    CronSchedule.objects.filter(name="c").update(broken="no such zone")
    CronSchedule.objects.filter(name="d").update(next_fire_at=ago(120))
    CronSchedule.objects.filter(name="b").update(next_fire_at=ago(120), paused=True)
    found = overview().schedules
    assert [each.name for each in found] == ["c", "d", "a", "b"]
    assert 120 <= (found[1].overdue or 0) < 180
    assert found[3].overdue is None


# --- on a deep table

DONE, READY, DEAD, PRIORITIES = 60_000, 12_000, 4_000, 3

ROWS = f"""
INSERT INTO django_reliable_jobs_job (name, queue, args, kwargs, status, reason, priority, run_at, attempts, max_attempts,
    losses, fencing_token, unique_until_start, created_at, finished_at)
SELECT 'probes.noop', (ARRAY['default', 'mail'])[1 + n % 2], '[]', '{{}}', status, '', n % {PRIORITIES},
       now() + (n - count / 2) * interval '1s', 0, 5, 0, n, false, now(),
       CASE WHEN status IN ('DONE', 'DEAD') THEN now() - n * interval '0.05s' END
  FROM (VALUES ('DONE', {DONE}), ('QUEUED', {READY}), ('DEAD', {DEAD}), ('FAILED', 500)) AS kind (status, count)
 CROSS JOIN LATERAL generate_series(1, count) AS n
"""


def test_a_look_reads_bounded_parts_of_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A05: whatever lies in the table, no statement scans it; and there are few statements."""
    monkeypatch.setattr(overview_queues, "MOST_WAITING", 3000)
    for what in ("MOST_FAILED", "MOST_DEAD"):
        monkeypatch.setattr(overview_queues, what, 100)
    monkeypatch.setattr(overview_slices, "SAMPLE", 20)
    worker = uuid4()
    JobFactory.create_batch(3, running=True, locked_by=worker)
    with connection.cursor() as cursor:
        cursor.execute(ROWS)
        cursor.execute(
            "INSERT INTO django_reliable_jobs_jobattempt (job_id, fencing_token, attempt, status, reason, finished_at,"
            " error_kind, error_message, traceback) SELECT id, 1, 1, 'FAILED', '', now(), '', '', ''"
            " FROM django_reliable_jobs_job LIMIT 6000"
        )
        cursor.execute("ANALYZE django_reliable_jobs_job, django_reliable_jobs_jobattempt")
    plans: dict[str, dict[str, Any]] = {}
    real = reading.read

    def explaining(alias: str, name: str, params: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {reading.load(name)}", params)
            plan = cursor.fetchone()[0]
        plans[name] = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
        return real(alias, name, params)

    for module in ("figures", "queues", "slices", "schedules"):
        monkeypatch.setattr(f"django_reliable_jobs.operations.overview.{module}.read", explaining)
    found = overview()
    assert queue(found=found).ready.capped
    assert queue(found=found).hour.estimated
    assert len(plans) == 9, "one statement for each kind of figure, however many queues there are"
    for name, plan in plans.items():
        for node in _nodes(plan):
            relation = node.get("Relation Name", "")
            assert node["Node Type"] != "Seq Scan" or not relation.endswith(("_job", "_jobattempt")), (name, node)
            read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            assert read <= 12_000, (name, node["Node Type"], relation, read)


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(each for child in node.get("Plans", ()) for each in _nodes(child))]
