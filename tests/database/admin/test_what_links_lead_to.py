"""Numbers, links and labels say what they say: what a figure leads to holds what was counted, at the cost of what is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_reliable_jobs.admin import paging
from django_reliable_jobs.admin.jobs import act as jobs_act
from django_reliable_jobs.admin.jobs import all_matching as jobs_walk
from django_reliable_jobs.models import Job
from tests.support.admin.fixtures import url
from tests.support.factories import JobAttemptFactory, JobFactory, ago

pytestmark = pytest.mark.django_db

BACKLOG = """
INSERT INTO django_reliable_jobs_job (name, queue, args, kwargs, status, reason, priority, run_at, attempts, max_attempts,
    losses, fencing_token, unique_until_start, created_at)
SELECT 'probes.noop', %s, '[]', '{}', 'QUEUED', '', 0, now() - n * interval '1 s', 0, 5, 0, 0, false, now()
  FROM generate_series(1, %s) AS n
"""


def backlog(queue: str, count: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(BACKLOG, [queue, count])
        cursor.execute("ANALYZE django_reliable_jobs_job")


def listed(client: Client, **query: Any) -> list[int]:
    answer = client.get(url("changelist", **query))
    assert answer.status_code == 200, answer.headers
    return [row.pk for row in answer.context["cl"].result_list]


class Plans:
    """How the SELECTs of a page read the table of jobs."""

    def __init__(self, queries: CaptureQueriesContext) -> None:
        self.indexes: set[str] = set()
        self.rows = 0
        for each in queries.captured_queries:
            if not each["sql"].lstrip().upper().startswith("SELECT") or "django_reliable_jobs_job" not in each["sql"]:
                continue
            with connection.cursor() as cursor:
                cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + each["sql"])
                found = cursor.fetchone()[0]
            for node in _walk((json.loads(found) if isinstance(found, str) else found)[0]["Plan"]):
                if "Index Name" in node:
                    self.indexes.add(node["Index Name"])
                if "Relation Name" in node:
                    self.rows += node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


# --- V01


def test_the_waiting_jobs_of_a_queue_behind_a_big_backlog_are_found(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "FILTERED", 1000)
    backlog("aaa", 5000)
    stock = [JobFactory(queue="stock", run_at=ago(n), priority=p).pk for n, p in ((50, 0), (10, 0), (0, 5))]
    assert listed(root, status="QUEUED", queue="stock") == [stock[2], stock[0], stock[1]], "as they will be claimed"
    with CaptureQueriesContext(connection) as queries:
        listed(root, status="QUEUED", queue="stock")
    plans = Plans(queries)
    assert "reliable_jobs_claim" in plans.indexes
    assert plans.rows < 1000, "not the other queue's"


def test_windows_of_a_queues_waiting_jobs_show_each_once(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "WINDOW", 7)
    backlog("aaa", 50)
    stock = {JobFactory(queue="stock", priority=n % 3).pk for n in range(20)}
    seen: list[int] = []
    address = url("changelist", status="QUEUED", queue="stock")
    for _ in range(3):
        answer = root.get(address)
        seen += [row.pk for row in answer.context["cl"].result_list]
        older = answer.context["cl"].older_url
        address = url("changelist") + older if older else ""
    assert not address
    assert sorted(seen) == sorted(stock)


# --- V02


@pytest.mark.parametrize("filters", ["status=QUEUED&queue=stock", "queue=stock"])
def test_all_that_match_behind_a_big_backlog_are_counted_and_cancelled(
    root: Client, monkeypatch: pytest.MonkeyPatch, filters: str
) -> None:
    monkeypatch.setattr(jobs_walk, "COUNTED", 500)
    backlog("aaa", 3000)
    for _ in range(37):
        JobFactory(queue="stock")
    question = root.get(url("act", verb="cancel", filters=filters)).content.decode()
    assert "37 jobs." in question
    assert "At least" not in question
    root.post(url("act"), {"verb": "cancel", "filters": filters})
    assert Job.objects.filter(status="CANCELLED").count() == 37


def test_none_among_those_that_were_counted_is_never_a_zero(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it goes on looking the hit is found; where its time is over it says that it has not counted."""
    monkeypatch.setattr(jobs_walk, "COUNTED", 500)
    backlog("aaa", 3000)
    JobFactory(queue="aaa", name="probes.echo", priority=-100)
    address = url("act", verb="cancel", filters="status=QUEUED&name=probes.echo")
    assert "1 job." in root.get(address).content.decode()
    monkeypatch.setattr(jobs_walk, "COUNT_FOR", -1.0)
    question = root.get(address).content.decode()
    assert "is not counted" in question
    assert "0 jobs" not in question


# --- V04


def test_the_share_of_failed_attempts_leads_to_the_jobs_of_these_attempts(root: Client) -> None:
    dead = JobFactory.create_batch(6, dead=True, queue="pay")
    waiting = JobFactory(failed=True, queue="pay")
    again = JobFactory(queue="pay")
    other, old = JobFactory(dead=True, queue="mail"), JobFactory(dead=True, queue="pay")
    for job in (*dead, waiting, again, other):
        JobAttemptFactory(job=job, status="DEAD", finished_at=ago(60))
    JobAttemptFactory(job=old, status="DEAD", finished_at=ago(7200))
    page = root.get(reverse("admin:django_reliable_jobs_overview")).content.decode()
    assert "100 % of the attempts in the queue pay failed in the last hour." in page
    link = url("changelist", attempts="failed", queue="pay")
    assert link.replace("&", "&amp;") in page
    assert listed(root, attempts="failed", queue="pay") == sorted((j.pk for j in (*dead, waiting, again)), reverse=True)
    assert listed(root, attempts="failed", queue="pay", status="DEAD") == sorted((j.pk for j in dead), reverse=True)
    root.post(url("act"), {"verb": "retry", "filters": "attempts=failed&queue=pay"})
    assert Job.objects.filter(queue="pay", status="QUEUED").count() == 8
    assert Job.objects.get(pk=old.pk).status == "DEAD"


def test_another_value_of_that_filter_is_refused(root: Client) -> None:
    assert root.get(url("changelist", attempts="nonsense")).status_code == 302


# --- V10


def test_a_walk_that_is_stopped_says_what_it_has_done(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_walk, "BATCH", 3)
    monkeypatch.setattr(jobs_act, "TURN", 0.0)
    for _ in range(10):
        JobFactory(dead=True, queue="pay")
    form = {"verb": "retry", "filters": "queue=pay&status=DEAD"}
    page = root.post(url("act"), form)
    state = {name: page.context[name] for name in ("state", "place", "total")}
    assert "Under way" in page.content.decode()
    stopped = root.post(
        url("act"), form | {"tally": state["state"], "place": state["place"], "total": state["total"], "stop": "1"}
    ).content.decode()
    assert "Stopped" in stopped
    assert "3 jobs are queued again." in stopped
    assert "Under way" not in stopped
    assert Job.objects.filter(status="DEAD").count() == 7


def test_a_batch_that_the_server_gives_up_is_done_in_halves(root: Client) -> None:
    """P25, in the admin: a project's statement_timeout, and one row that takes longer than that."""
    jobs = JobFactory.create_batch(8, queue="pay")
    slow = jobs[5]
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE OR REPLACE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF NEW.id = {slow.pk} THEN PERFORM pg_sleep(30); END IF; RETURN NEW; END $$"
        )
        cursor.execute(
            "CREATE OR REPLACE TRIGGER d BEFORE UPDATE ON django_reliable_jobs_job FOR EACH ROW EXECUTE FUNCTION dawdle()"
        )
        cursor.execute("SET LOCAL statement_timeout = 700")
    answer = root.post(url("act"), {"verb": "cancel", "filters": "queue=pay"}).content.decode()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")
    assert "7 jobs are cancelled, or asked to stop. 1 is left as it is: the database has given it up." in answer
    assert set(Job.objects.filter(status="QUEUED").values_list("pk", flat=True)) == {slow.pk}


# --- V22


def choices(client: Client, term: str) -> list[int]:
    """What a field of a foreign key to Job offers."""
    source = {"app_label": "django_reliable_jobs", "model_name": "jobattempt", "field_name": "job"}
    answer = client.get(reverse("admin:autocomplete"), {"term": term} | source)
    assert answer.status_code == 200, answer.content
    return [int(each["id"]) for each in answer.json()["results"]]


def test_a_field_of_a_foreign_key_finds_what_is_asked(root: Client) -> None:
    by_key = JobFactory(idempotency_key="order-77", unique_key="order-77-u")
    by_name = JobFactory(name="probes.echo")
    by_arguments = JobFactory(args=["Nguyen"])
    for _ in range(5):
        JobFactory()
    assert choices(root, str(by_key.pk)) == [by_key.pk]
    assert choices(root, f"#{by_key.pk}") == [by_key.pk]
    assert choices(root, str(by_name)) == [by_name.pk], "as it is shown"
    assert choices(root, "order-77") == choices(root, "order-77-u") == [by_key.pk]
    assert choices(root, "ECHO") == [by_name.pk]
    assert choices(root, "nguyen") == [by_arguments.pk]
    assert choices(root, "nothing of the kind") == []
    assert choices(root, "") == sorted(Job.objects.values_list("pk", flat=True), reverse=True)
    assert choices(root, "nul \0") == []


def test_such_a_field_looks_at_the_newest_jobs_only(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_reliable_jobs.admin.jobs.changelist.SEARCHED", 300)
    monkeypatch.setattr("django_reliable_jobs.admin.jobs.changelist.WINDOW", 300)
    old = JobFactory(args=["Nguyen"])
    backlog("aaa", 5000)
    new = JobFactory(args=["Nguyen"])
    for term, found in (("", None), ("nguyen", [new.pk]), (str(old.pk), [old.pk]), ("probes.noop", None)):
        with CaptureQueriesContext(connection) as queries:
            got = choices(root, term)
        assert found is None or got == found
        assert len(got) <= 20
        assert Plans(queries).rows < 2000, term
