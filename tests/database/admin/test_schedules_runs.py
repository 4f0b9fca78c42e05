"""Cron runs in the admin: what became of each fire time, quick on a large table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_reliable_jobs.models import CronRun
from tests.support.admin.fixtures import Staff, url
from tests.support.factories import JobFactory, WorkerFactory, ago
from tests.support.schedules.tools import schedule

pytestmark = pytest.mark.django_db


def run(name: str = "report", seconds: float = 60, **values: Any) -> CronRun:
    values = {"outcome": "enqueued", "fired_at": ago(seconds)} | values
    return CronRun.objects.create(name=name, scheduled_for=ago(seconds), **values)


def listed(client: Client, **query: str) -> list[CronRun]:
    answer = client.get(url("changelist", model="cronrun"), query)
    assert answer.status_code == 200
    return list(answer.context["cl"].result_list)


def test_the_newest_come_first_and_the_filters_narrow(root: Client) -> None:
    old, skipped, error = run(seconds=90_000), run(seconds=50, outcome="skipped_misfire"), run("b", 20, outcome="error")
    assert listed(root) == [error, skipped, old]
    assert listed(root, schedule="report") == [skipped, old]
    assert listed(root, outcome="error") == [error]
    assert listed(root, time="day") == [error, skipped]
    assert listed(root, schedule="report", time="hour", outcome="skipped_misfire") == [skipped]
    assert listed(root, schedule="nobody") == []
    assert root.get(url("changelist", model="cronrun"), {"schedule": "no\x00body"}).status_code == 302
    assert root.get(url("changelist", model="cronrun"), {"time": "soon"}).status_code == 302


def test_a_run_shows_the_status_of_its_job_and_keeps_it(root: Client) -> None:
    job, worker = JobFactory(dead=True), WorkerFactory(host="pod", pid=7)
    shown = run(job_id=job.pk, fired_by=worker.pk)
    kept = run(seconds=50, job_id=10**12, job_status="DONE", job_finished_at=ago(1))
    row = schedule()
    text = root.get(url("changelist", model="cronrun")).content.decode()
    assert "job-badge-dead" in text
    assert "job-badge-done" in text
    detail = root.get(url("change", shown.pk, model="cronrun")).content.decode()
    for address in (
        url("change", job.pk), url("change", worker.pk, model="worker"), url("change", row.pk, model="cronschedule"),
    ):  # fmt: skip
        assert address in detail
    gone = root.get(url("change", kept.pk, model="cronrun")).content.decode()
    assert "job-badge-done" in gone
    assert url("change", kept.job_id) not in gone


def test_a_skipped_stretch_says_how_long_it_was(root: Client) -> None:
    run(outcome="skipped_misfire", skipped_count=1234)
    assert "(1,234 fire times)" in root.get(url("changelist", model="cronrun")).content.decode()


def test_nobody_changes_a_run(root: Client, staff: Staff) -> None:
    made = run()
    assert root.get(url("add", model="cronrun")).status_code == 403
    assert root.post(url("change", made.pk, model="cronrun"), {"outcome": "error"}).status_code == 403
    assert root.post(url("delete", made.pk, model="cronrun"), {"post": "yes"}).status_code == 403
    assert CronRun.objects.get().outcome == "enqueued"
    assert staff("view_job").get(url("changelist", model="cronrun")).status_code == 403


@pytest.mark.parametrize("query", [{}, {"schedule": "schedule 3"}, {"time": "hour"}], ids=str)
def test_a_page_reads_no_more_than_it_shows(root: Client, query: dict[str, str]) -> None:
    """A05: no count and no scan of the table."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_reliable_jobs_cronrun (name, scheduled_for, outcome, detail, skipped_count, job_id,"
            " job_status, fired_at, manual) SELECT 'schedule ' || n % 400, now() - n * interval '1 min', 'enqueued', '', 0,"
            " n, '', now() - n * interval '1 min', false FROM generate_series(1, 40000) n"
        )
        cursor.execute("ANALYZE django_reliable_jobs_cronrun")
    address = url("changelist", model="cronrun")
    root.get(address, query)
    with CaptureQueriesContext(connection) as seen:
        assert root.get(address, query).status_code == 200
    assert len(seen) <= 12
    for query_seen in seen.captured_queries:
        if "cronrun" not in query_seen["sql"]:
            continue
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + query_seen["sql"])
            plan = cursor.fetchone()[0]
        for node in _nodes((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]):
            assert node["Node Type"] != "Seq Scan" or node["Relation Name"] != CronRun._meta.db_table
            assert node["Actual Rows"] * node["Actual Loops"] <= 20_001, query_seen["sql"]


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(each for child in node.get("Plans", ()) for each in _nodes(child))]
