"""The page of one job."""

from __future__ import annotations

import re
import time
from datetime import date
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_reliable_jobs.models import CronRun, Job
from tests.support.admin.fixtures import Staff, url
from tests.support.factories import JobAttemptFactory, JobCheckpointFactory, JobFactory, WorkerFactory, ago
from tests.support.probes.jobs import echo, hides

pytestmark = pytest.mark.django_db

BUTTON = 'class="job-button'


def text_of(client: Client, job: Job) -> str:
    answer = client.get(url("change", job.pk))
    assert answer.status_code == 200
    return answer.content.decode()


def test_everything_about_a_job_is_on_its_page(root: Client) -> None:
    worker = WorkerFactory(host="web-1", pid=42)
    job = JobFactory(
        running=True, name="probes.echo", args=[{"n": [1, 2.5]}], locked_by=worker.pk, fencing_token=1234567,
        progress={"done": 37, "total": 120, "message": "rows"}, unique_key="the key", idempotency_key="once",
    )  # fmt: skip
    JobCheckpointFactory(job=job, value={"row": 37})
    JobAttemptFactory(job=job, error_message="it was late", traceback="Traceback (most recent call last):\n  here")
    run = CronRun.objects.create(
        name="nightly", scheduled_for=ago(60), outcome="enqueued", job_id=job.pk, fired_at=ago(60)
    )
    text = text_of(root, job)
    for piece in ("web-1:42", "1234567", "the key", "once", "nightly", "it was late", "ValueError", "37 / 120 rows"):
        assert piece in text, piece
    assert '<progress id="job-progress" max="120" value="37">' in text
    assert "&quot;row&quot;: 37" in text
    assert "&quot;n&quot;: [" in text
    assert url("change", worker.pk, model="worker") in text
    assert url("change", run.pk, model="cronrun") in text
    assert re.search(r"<details id=\"attempt-\d+\"><summary>Traceback", text)
    assert 'data-interval="2000"' in text
    assert re.search(r"As of \d\d:\d\d:\d\d", text)


def test_arguments_are_shown_as_the_handler_gets_them(root: Client) -> None:
    text = text_of(root, echo.enqueue({"day": date(2026, 3, 1)}))
    assert "2026-03-01" in text
    assert "$date" not in text
    assert "<h3>value</h3>" in text


def test_the_result_of_a_done_job(root: Client) -> None:
    assert "&quot;sent&quot;" in text_of(root, JobFactory(done=True, result={"sent": 1}))
    assert "job-result" not in text_of(root, JobFactory(done=True))


@pytest.mark.parametrize("progress", [{"done": 5}, {"done": None, "total": 0}, {"done": 1, "total": "many"}, [], "x"])
def test_progress_that_has_no_end_or_no_sense(root: Client, progress: object) -> None:
    text_of(root, JobFactory(running=True, progress=progress))


def test_html_is_escaped_wherever_it_stands(root: Client) -> None:
    evil = "<script>alert(1)</script><b>"
    job = JobFactory(
        dead=True, name="probes.echo", args=[evil], kwargs={evil: evil}, result={evil: evil}, reason=evil, queue=evil,
        unique_key=evil, progress={"done": 1, "message": evil},
    )  # fmt: skip
    JobAttemptFactory(job=job, error_message=evil, traceback=evil, error_kind=evil, reason=evil)
    JobCheckpointFactory(job=job, value=evil)
    assert "<script>alert" not in text_of(root, job)
    assert "<script>alert" not in root.get(url("changelist")).content.decode()
    assert "<script>alert" not in root.get(url("act", verb="retry", ids=job.pk)).content.decode()
    assert "<script>alert" not in root.get(url("act", verb="retry", filters="name=" + evil)).content.decode()


@pytest.mark.parametrize("size", [100_000, 5_000_000])
def test_a_long_line_is_cut_and_quick(root: Client, size: int) -> None:
    line = "x" * size
    job = JobFactory(dead=True, name="probes.echo", args=[line], result=line)
    JobCheckpointFactory(job=job, value=line)
    JobAttemptFactory(job=job, error_message=line, traceback=f"begin {line} end")
    begin = time.monotonic()
    text = text_of(root, job)
    assert time.monotonic() - begin < 10, "a second or so; a busy machine gets more"
    assert len(text) < 200_000
    assert f"{size + 2:,} characters in all" in text
    assert "begin xxx" in text
    assert "xxx end" in text
    assert "characters left out" in text


def test_what_is_large_even_compressed_does_not_leave_the_database(root: Client) -> None:
    with connection.cursor() as cursor:
        job = JobFactory(dead=True, name="probes.echo")
        cursor.execute(
            "UPDATE django_reliable_jobs_job SET args = (SELECT jsonb_agg(md5(n::text)) FROM generate_series(1, 100000) n)"
            " WHERE id = %s",
            [job.pk],
        )
    text = text_of(root, job)
    assert "bytes stored" in text
    assert len(text) < 60_000


@pytest.mark.parametrize("length", [10, 4_000, 9_000, 16_000, 16_001, 50_000])
def test_a_traceback_keeps_its_two_ends(root: Client, length: int) -> None:
    whole = "A" + "b" * (length - 2) + "Z"
    job = JobFactory(dead=True)
    JobAttemptFactory(job=job, traceback=whole)
    [shown] = re.findall(r'aria-label="Traceback">(.*?)</pre>', text_of(root, job), re.DOTALL)
    if length <= 16_000:
        assert shown == whole
    else:
        assert (shown[0], shown[-1], len(shown) < 16_100) == ("A", "Z", True)
        assert f"{length - 16_000:,} characters left out" in shown


def test_a_job_with_many_attempts_shows_the_newest(root: Client) -> None:
    job = JobFactory(dead=True)
    with CaptureQueriesContext(connection) as few:
        text_of(root, job)
    for number in range(25):
        JobAttemptFactory(job=job, attempt=number)
    with CaptureQueriesContext(connection) as many:
        text = text_of(root, job)
    assert len(few) == len(many) <= 12
    assert (text.count("<strong>attempt "), "attempt 24<" in text, "attempt 4<" in text) == (20, True, False)
    assert "Older attempts are not shown" in text


def test_a_lease_that_is_over_is_told_by_the_databases_clock(root: Client) -> None:
    assert "The lease is over" in text_of(root, JobFactory(running=True, locked_until=ago(5)))
    assert "The lease is over" not in text_of(root, JobFactory(running=True))


def test_redacted_arguments_are_hidden_and_what_quotes_them_is_scrubbed(root: Client) -> None:
    job = hides.enqueue(1234, "4111222233334444", "rest", token="tok_secret")
    Job.objects.update(
        status="DEAD", finished_at=ago(1), result={"of": ["4111222233334444"]},
        progress={"done": 1, "message": "card 4111222233334444"},
    )  # fmt: skip
    JobAttemptFactory(job=job, error_message="4111222233334444 tok_secret", traceback="at 4111222233334444")
    JobCheckpointFactory(job=job, value="tok_secret")
    text = text_of(root, job)
    assert "4111222233334444" not in text
    assert "tok_secret" not in text
    assert "1234" in text
    assert "&quot;rest&quot;" in text, "only what is named is hidden"


def test_of_a_job_that_is_not_known_here_no_argument_is_shown(root: Client) -> None:
    text = text_of(root, JobFactory(name="nobody.knows.it", args=["visible?"], kwargs={"note": "visible?"}))
    assert "visible?" not in text
    assert "does not know the job" in text


def test_buttons_by_status_and_permission(root: Client, staff: Staff) -> None:
    dead, running = JobFactory(dead=True), JobFactory(running=True)

    def verbs(client: Client, job: Job) -> list[str]:
        return re.findall(r"verb=(\w+)&amp;ids", text_of(client, job))

    assert verbs(root, dead) == ["retry", "delete"]
    assert verbs(root, running) == ["cancel"]
    assert verbs(root, JobFactory()) == ["cancel", "run_now", "priority", "delete"]
    assert verbs(staff("view_job"), dead) == []
    assert BUTTON not in text_of(staff("view_job"), dead)
    assert verbs(staff("view_job", "retry_job"), dead) == ["retry"]
    assert verbs(staff("view_job", "cancel_job"), running) == ["cancel"]


@pytest.mark.parametrize("pk", ["0", "99999999", "9" * 30, "x", "1_2F", "-1"])
def test_a_job_that_is_not_there_leads_to_the_index(root: Client, pk: str) -> None:
    answer = root.get(url("change", pk))
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")


def test_a_worker_that_is_gone(root: Client) -> None:
    owner = uuid4()
    assert str(owner) in text_of(root, JobFactory(running=True, locked_by=owner))


def test_the_history_page(root: Client) -> None:
    assert root.get(url("history", JobFactory().pk)).status_code == 200
