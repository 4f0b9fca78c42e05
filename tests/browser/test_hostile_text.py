"""What people and programs write is text on every page: never a script, a picture or a style, and never endless."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.utils import timezone

from django_reliable_jobs.models import CronRun, CronSchedule, Fence, GuardClaim, Job, QueueState, Worker
from tests.browser.app import jobs
from tests.browser.conftest import OpenPage
from tests.browser.expecting import expect
from tests.browser.looks import LOOKS, check_look
from tests.browser.server import Site
from tests.support.factories import (
    JobAttemptFactory,
    JobCheckpointFactory,
    JobFactory,
    QueueStateFactory,
    WorkerFactory,
    ago,
    next_token,
)  # fmt: skip
from tests.support.fleet import wait_until

APP = "django_reliable_jobs"
OVERVIEW = f"{APP}/queuestate/overview/"


def of(job: Job) -> str:
    return f"{APP}/job/{job.pk}/change/"


HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7|add:7 }}'\"&amp;"


def test_html_in_arguments_errors_and_results_is_text(open_page: OpenPage, site: Site) -> None:
    """An alert, a breach of the policy or a request for the picture would fail the test."""
    dead, done = jobs.says.enqueue(HOSTILE), jobs.keep.enqueue({HOSTILE: HOSTILE})
    odd = jobs.charge_card.using(unique_key=HOSTILE).enqueue(HOSTILE)
    wait_until(lambda: not Job.objects.filter(pk__in=[dead.pk, done.pk, odd.pk], finished_at=None).exists())
    page = open_page(of(dead))
    expect(page.locator(".job-error")).to_contain_text(HOSTILE)
    page.locator("summary").click()
    expect(page.locator("details pre")).to_contain_text(HOSTILE)
    for job in (done, odd):
        page.goto(site.url + of(job))
        expect(page.locator("#content")).to_contain_text("<script>alert(1)</script>")
        assert page.locator("#content script, #content img[src=x]").count() == 0
    page.goto(f"{site.url}{APP}/job/?q=%3Cscript%3Ealert(3)%3C/script%3E")


def test_five_megabytes_of_text_and_a_line_of_100_000_characters_are_cut(open_page: OpenPage) -> None:
    large = jobs.says.enqueue("five megabytes! ", 5_000_000 // 16)
    line = jobs.says.enqueue("x", 100_000)
    value = jobs.keep.enqueue("y" * 900_000)
    wait_until(lambda: not Job.objects.filter(pk__in=[large.pk, line.pk, value.pk], finished_at=None).exists())
    for job in (large, line, value):
        page = open_page(of(job), **LOOKS["390 px"])
        expect(page.locator("#job-live")).to_contain_text("cut, ")
        assert len(page.content()) < 300_000
        for summary in page.locator("summary").all():
            summary.click()
        check_look(page, "390 px")


@pytest.fixture
def hostile_rows(site: Site) -> Iterator[list[str]]:
    """Every text that a page can show says the same; yields the pages."""
    worker = WorkerFactory(host=HOSTILE, queues=HOSTILE, version="<b>1</b>")
    job = JobFactory(
        running=True, name=HOSTILE, queue="<b>q</b>", args=[HOSTILE], locked_by=worker.pk, locked_until=ago(-3600),
        unique_key=HOSTILE, reason=HOSTILE[:100], progress={"done": 1, "total": 2, "message": HOSTILE},
    )  # fmt: skip
    JobAttemptFactory(job=job, error_kind=HOSTILE, error_message=HOSTILE, traceback=HOSTILE, reason=HOSTILE[:100])
    JobCheckpointFactory(job=job, value=HOSTILE)
    schedule = CronSchedule.objects.create(
        name=HOSTILE, job_name=HOSTILE, expression="0 0 1 1 *", timezone="UTC", broken=HOSTILE, fired_through=ago(60),
        resumed_at=ago(60), args=[HOSTILE], paused=True,
    )  # fmt: skip
    run = CronRun.objects.create(
        name=HOSTILE, scheduled_for=ago(60), fired_at=ago(60), outcome="error", detail=HOSTILE, fired_by=worker.pk
    )
    claim = GuardClaim.objects.create(
        key=HOSTILE, owner=HOSTILE, fencing_token=next_token(), claimed_at=timezone.now(), expires_at=ago(-60)
    )
    Fence.objects.create(name=HOSTILE, fencing_token=next_token(), passed_at=ago(40))
    QueueStateFactory(queue="<b>q</b>")
    yield [
        f"{APP}/{path}"
        for path in (
            "queuestate/overview/", "job/", f"job/{job.pk}/change/", f"job/act/?verb=cancel&ids={job.pk}", "cronschedule/",
            f"cronschedule/{schedule.pk}/change/", "cronrun/", f"cronrun/{run.pk}/change/", "worker/",
            f"worker/{worker.pk}/change/", "guardclaim/", f"guardclaim/{claim.pk}/change/", "fence/", "queuestate/",
        )
    ]  # fmt: skip
    Job.objects.filter(pk=job.pk).delete()
    for row in (schedule, run, claim):
        row.delete()
    Fence.objects.filter(name=HOSTILE).delete()
    Worker.objects.filter(pk=worker.pk).delete()
    QueueState.objects.filter(queue="<b>q</b>").delete()


def test_html_in_every_column_is_text_on_every_page(open_page: OpenPage, site: Site, hostile_rows: list[str]) -> None:
    page = open_page()
    for path in hostile_rows:
        page.goto(site.url + path)
        content = page.locator("#content")
        expect(content).to_contain_text("<b>q</b>" if path.endswith("queuestate/") else "<script>alert(1)</script>")
        assert content.locator("b, img[src=x], script:not([src]):not([type='application/json'])").count() == 0, path
    page.clock.install()
    page.goto(site.url + OVERVIEW)
    before = page.locator(".jobs-asof").inner_text()
    page.clock.run_for(10_000)
    expect(page.locator(".jobs-asof")).not_to_have_text(before)
    expect(page.locator(".jobs-queues")).to_contain_text("<b>q</b>")
    assert page.locator("#content").locator("b, img[src=x], script").count() == 0
