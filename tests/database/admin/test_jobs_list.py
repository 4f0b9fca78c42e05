"""The list of jobs: what it finds, in which order, how far it looks, and what it costs."""

from __future__ import annotations

import re
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_reliable_jobs.admin import paging
from django_reliable_jobs.models import CronRun, Job
from tests.support.admin.fixtures import url
from tests.support.factories import JobFactory, QueueStateFactory, WorkerFactory, ago

pytestmark = pytest.mark.django_db

TRAITS = ("queued", "failed", "running", "done", "dead", "cancelled")


def make(trait: str = "queued", **values: Any) -> Job:
    return JobFactory(**values, **({} if trait == "queued" else {trait: True}))


def listed(client: Client, address: str = "", **query: Any) -> list[int]:
    answer = client.get(address or url("changelist", **query))
    assert answer.status_code == 200, answer.headers
    return [row.pk for row in answer.context["cl"].result_list]


def test_jobs_are_listed_newest_first_with_their_status(root: Client) -> None:
    worker = WorkerFactory(host="web-1", pid=42)
    jobs = [make(trait) for trait in TRAITS] + [make("running", locked_by=worker.pk, cancel_requested_at=ago(1))]
    page = root.get(url("changelist"))
    assert [row.pk for row in page.context["cl"].result_list] == [job.pk for job in reversed(jobs)]
    text = page.content.decode()
    for trait in TRAITS:
        assert f'<span class="job-badge job-badge-{trait}">{trait}</span>' in text
    assert "web-1:42" in text
    assert "asked to stop" in text


@pytest.mark.parametrize("trait", TRAITS)
def test_the_status_filter(root: Client, trait: str) -> None:
    jobs = {name: make(name) for name in TRAITS}
    assert listed(root, status=trait.upper()) == [jobs[trait].pk]
    assert listed(root, status__exact=trait.upper()) == [jobs[trait].pk]


def test_the_other_filters(root: Client) -> None:
    worker = WorkerFactory()
    mail, echo = make(queue="mail"), make(name="probes.echo")
    owned = make("running", locked_by=worker.pk)
    old = make("dead", created_at=ago(7200), finished_at=ago(7200))
    fired = make(scheduled_for=timezone.now())
    CronRun.objects.create(name="nightly", scheduled_for=ago(60), outcome="enqueued", job_id=fired.pk, fired_at=ago(60))
    assert listed(root, queue="mail") == [mail.pk]
    assert listed(root, name="probes.echo") == [echo.pk]
    assert listed(root, worker=str(worker.pk)) == [owned.pk]
    assert listed(root, schedule="nightly") == [fired.pk]
    assert listed(root, schedule="no such") == []
    assert old.pk not in listed(root, time="hour")
    assert old.pk in listed(root, time="day")
    assert listed(root, status="DEAD", time="hour") == []
    assert listed(root, status="DEAD", time="day") == [old.pk]
    assert listed(root, status="QUEUED", queue="mail") == [mail.pk]


def test_the_filters_offer_what_is_known_without_reading_the_table(root: Client) -> None:
    QueueStateFactory(queue="paused-one")
    JobFactory(queue="only-in-the-table", name="only.in.the.table")
    with CaptureQueriesContext(connection) as queries:
        text = root.get(url("changelist")).content.decode()
    assert "?queue=paused-one" in text
    assert "?queue=only-in-the-table" in text, "jobs wait there"
    assert "?name=probes.noop" in text
    assert "only.in.the.table" not in re.findall(r"\?name=([\w.]+)", text)
    assert not [query for query in queries if "DISTINCT" in query["sql"] or "GROUP BY" in query["sql"]]
    assert '<option value="retry">' in text


@pytest.mark.parametrize(
    "query",
    [
        {"worker": "no-uuid"}, {"time": "never"}, {"status": "LOST"}, {"queue": "a\0b"}, {"name": "a\0b"},
        {"schedule": "a\0b"}, {"from": "[1, 2"}, {"from": '["x"]'}, {"from": "[1e400]"}, {"from": '{"a": 1}'},
        {"from": '["\\u0000", 1, "x", 2]', "status": "QUEUED"}, {"from": '["now", 5]', "status": "DEAD"},
        {"q": "a\0b"}, {"q": "9" * 40}, {"q": "%_\\'\""}, {"p": "x"}, {"p": "99999"}, {"o": "1.2"}, {"id__gt": "x"},
    ],
)  # fmt: skip
def test_nonsense_in_the_address_is_no_error(root: Client, query: dict[str, str]) -> None:
    make()
    answer = root.get(url("changelist", **query))
    assert answer.status_code in (200, 302), "302 is Django's way to say that a filter makes no sense"


@pytest.mark.parametrize("lookup", ["args__contains", "kwargs__card__startswith", "result__isnull", "progress__x"])
def test_the_arguments_cannot_be_asked_letter_by_letter(root: Client, lookup: str) -> None:
    make()
    assert root.get(url("changelist", **{lookup: "4"})).status_code == 400


def test_search_by_id_and_keys(root: Client) -> None:
    by_id, unique, idempotent = make(), make(unique_key="order-7"), make("done", idempotency_key="pay-7")
    make(args=["order-7"]), make(args=[by_id.pk])
    assert listed(root, q=f" {by_id.pk} ") == [by_id.pk]
    assert listed(root, q="order-7") == [unique.pk]
    assert listed(root, q="pay-7") == [idempotent.pk]
    assert listed(root, q="order-7", status="DEAD") == []


def test_search_in_the_arguments(root: Client) -> None:
    in_args, in_kwargs = make(args=["Order-7 of Mai"]), make(kwargs={"note": "for MAI"})
    make(args=["somebody else"])
    freed = make("done", unique_key="mai-1")
    assert listed(root, q="mai") == [in_kwargs.pk, in_args.pk]
    assert listed(root, q="mai-1") == [freed.pk], "a finished job's key is no longer in an index"
    assert listed(root, q=f"arg:{in_args.pk}") == []
    assert listed(root, q="mai", status="DEAD") == []


def test_search_does_not_tell_what_a_page_hides(root: Client) -> None:
    make(name="probes.hides", kwargs={"card": "4111222233334444"})
    make(name="nobody.knows.it", kwargs={"card": "4111222233334444"})
    assert listed(root, q="4111") == []


def test_large_arguments_are_not_read_for_a_search(root: Client) -> None:
    noise = Random(1).randbytes(10_000).hex()  # what does not compress
    make(args=[f"needle {noise}"])
    small = make(args=["needle"])
    assert listed(root, q="needle") == [small.pk]


@pytest.mark.parametrize("status", [None, "QUEUED", "RUNNING", "FAILED", "DONE", "DEAD", "CANCELLED"])
def test_windows_show_each_job_once(root: Client, monkeypatch: pytest.MonkeyPatch, status: str | None) -> None:
    monkeypatch.setattr(paging, "WINDOW", 4)
    same = ago(30)
    wanted = set()
    for number in range(11):
        for trait in TRAITS:
            moment = (
                {} if trait in ("queued", "failed", "running") else {"finished_at": same if number % 2 else ago(40)}
            )
            job = make(
                trait, queue=f"q{number % 2}", priority=number % 3, run_at=same if number % 4 else ago(9), **moment
            )
            if status in (None, trait.upper()):
                wanted.add(job.pk)
    address: str | None = url("changelist", **({"status": status} if status else {}))
    seen: list[int] = []
    while address is not None:
        changes = root.get(address).context["cl"]
        found = [row.pk for row in changes.result_list]
        assert len(found) <= 4
        seen += found
        address = changes.older_url and url("changelist") + changes.older_url
    assert len(seen) == len(set(seen))
    assert set(seen) == wanted


def test_a_window_says_that_there_is_more_and_leads_back(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "WINDOW", 3)
    jobs = [make() for _ in range(5)]
    first = root.get(url("changelist"))
    assert first.context["cl"].newest_url is None
    assert "Look further" in first.content.decode()
    second = root.get(url("changelist") + first.context["cl"].older_url)
    assert [row.pk for row in second.context["cl"].result_list] == [jobs[1].pk, jobs[0].pk]
    assert second.context["cl"].older_url is None
    assert "from=" not in second.context["cl"].newest_url
    assert "Back to the beginning" in second.content.decode()
    assert "from=" not in second.context["cl"].get_query_string({"status": "DEAD"}), "a filter begins at the newest"


def test_a_filter_is_tried_on_a_larger_window(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "WINDOW", 2)
    monkeypatch.setattr(paging, "FILTERED", 4)
    rare = make(queue="rare")
    [make() for _ in range(4)]
    page = root.get(url("changelist", queue="rare"))
    assert list(page.context["cl"].result_list) == []
    assert listed(root, url("changelist") + page.context["cl"].older_url) == [rare.pk]


def test_pages_within_a_window(root: Client) -> None:
    jobs = [make() for _ in range(55)]
    first, second = listed(root), listed(root, p="2")
    assert (len(first), first + second) == (50, [job.pk for job in reversed(jobs)])


@pytest.mark.parametrize(
    "query",
    [
        {}, {"p": "2"}, {"status": "DEAD"}, {"status": "DONE", "time": "hour"}, {"status": "QUEUED", "queue": "mail"},
        {"status": "RUNNING"}, {"status": "FAILED"}, {"name": "probes.noop"}, {"time": "hour"}, {"q": "arg:x"}, {"q": "7"},
        {"q": "a key"}, {"schedule": "nightly"},
    ],
    ids=str,
)  # fmt: skip
def test_a_page_costs_the_same_whatever_there_is(
    root: Client, monkeypatch: pytest.MonkeyPatch, query: dict[str, str]
) -> None:
    """An index serves each look at the table: with sequential scans forbidden none is left, and no sort of it all."""
    for name in ("WINDOW", "FILTERED", "SEARCHED"):
        monkeypatch.setattr(paging, name, 5)
    for number in range(120):
        job = make(TRAITS[number % 6], created_at=timezone.now() - timedelta(seconds=number))
    CronRun.objects.create(name="nightly", scheduled_for=ago(60), outcome="enqueued", job_id=job.pk, fired_at=ago(60))
    with CaptureQueriesContext(connection) as queries:
        listed(root, **query)
    assert len(queries) <= 10
    asked = [query["sql"] for query in queries if 'FROM "django_reliable_jobs_job"' in query["sql"]]
    assert asked
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        for sql in asked:
            assert not re.search(r'_job"\."(args|kwargs|result|progress)",', sql), "large columns are not read"
            cursor.execute(f"EXPLAIN {sql}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "Seq Scan on django_reliable_jobs_job" not in plan, plan


def test_more_jobs_cost_no_more_queries(root: Client) -> None:
    counts = []
    for number in (1, 30):
        for _ in range(number):
            make("running", locked_by=WorkerFactory().pk)
        with CaptureQueriesContext(connection) as queries:
            listed(root)
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 10
