"""Somebody is called at night: a job has died, another one does not end. In a browser, with a real worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.contrib.admin.models import LogEntry

from django_reliable_jobs.models import Job
from tests.browser.app import jobs
from tests.browser.conftest import OpenPage, log_in
from tests.browser.expecting import expect
from tests.browser.looks import LOOKS, check_look
from tests.browser.server import Site
from tests.probes.models import Mark
from tests.processes.fleet import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

OVERVIEW = "django_reliable_jobs/queuestate/overview/"
LIST = "django_reliable_jobs/job/"
STATE = "#job-live .job-headline .job-badge"


def of(job: Job) -> str:
    return f"{LIST}{job.pk}/change/"


def stays(page: Page) -> None:
    """From here on a reload of the page would be seen by `still_there`."""
    page.evaluate("window.stays = true")


def still_there(page: Page) -> bool:
    return bool(page.evaluate("window.stays === true"))


def time_passes(page: Page, look: str) -> None:
    """Until the overview refreshes itself."""
    if look != "wide":
        page.clock.run_for(10_000)


def figure(page: Page, queue: str, what: str) -> Locator:
    return page.locator(f"#queue-{queue} [data-label='{what}'] .jobs-figure")


@pytest.mark.parametrize("look", LOOKS)
def test_a_job_fails_goes_dead_is_retried_and_ends_well(open_page: OpenPage, site: Site, look: str) -> None:
    Job.objects.filter(queue="payments").delete()
    page = open_page(user=None, **LOOKS[look])
    log_in(page, site, "boss")
    if look != "wide":  # There it takes as long as it takes.
        page.clock.install()
    page.goto(site.url + OVERVIEW)
    expect(figure(page, "payments", "Dead")).to_have_text("0")
    stays(page)
    order = f"order {look}"
    job = jobs.charge_card.enqueue(order, card="4929 1234 5678 9012")
    wait_until(lambda: Job.objects.get(pk=job.pk).status == "DEAD")
    time_passes(page, look)
    expect(figure(page, "payments", "Dead")).to_have_text("1")
    expect(page.locator(".jobs-problems")).to_contain_text("1 job of the queue payments went DEAD")
    assert still_there(page)

    # A second tab, so that the first one is seen to follow.
    second = page.context.new_page()
    second.goto(site.url + OVERVIEW)
    figure(second, "payments", "Dead").get_by_role("link").click()
    found = second.get_by_role("link", name=str(job))
    expect(found).to_be_visible()
    check_look(second, look)
    found.click()
    expect(second.locator(STATE)).to_have_text("dead")
    expect(second.locator("#job-live")).to_contain_text("the bank does not answer")
    expect(second.locator("#job-live")).not_to_contain_text("4929")
    check_look(second, look)
    Mark.objects.create(label=f"{order}: the bank is back")
    second.get_by_role("link", name="Retry").click()
    expect(second.get_by_role("heading", name="Please confirm")).to_be_visible()
    check_look(second, look)
    second.get_by_role("button", name="Retry").click()
    expect(second.locator(".messagelist")).to_contain_text("1 job is queued again")
    stays(second)
    wait_until(lambda: Job.objects.get(pk=job.pk).status == "DONE")
    time_passes(second, look)
    expect(second.locator(STATE)).to_have_text("done")
    expect(second.locator("#job-live")).to_contain_text(f"{order} is paid")
    assert still_there(second)
    assert LogEntry.objects.filter(object_id=str(job.pk), change_message="Retried.").exists()

    page.bring_to_front()
    time_passes(page, look)
    expect(figure(page, "payments", "Dead")).to_have_text("0")
    assert still_there(page)
    check_look(page, look)


@pytest.mark.parametrize("look", LOOKS)
def test_a_running_job_is_cancelled_and_its_progress_bar_stops(open_page: OpenPage, look: str) -> None:
    job = jobs.import_books.enqueue(f"import {look}")
    wait_until(lambda: Job.objects.get(pk=job.pk).progress)
    page = open_page(of(job), **LOOKS[look])
    bar = page.locator("#job-progress")
    expect(page.locator(STATE)).to_have_text("running")
    first = float(bar.get_attribute("value") or 0)
    stays(page)
    page.wait_for_function("first => Number(document.querySelector('#job-progress').value) > first", arg=first)
    assert still_there(page)

    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".messagelist")).to_contain_text("1 job is cancelled, or asked to stop")
    stays(page)
    expect(page.locator(STATE)).to_have_text("cancelled")
    expect(page.locator("#job-live")).to_contain_text("cancel requested")
    assert still_there(page)
    stopped = Job.objects.get(pk=job.pk)
    assert stopped.progress
    expect(bar).to_have_attribute("value", str(stopped.progress["done"]))
    check_look(page, look)
    page.reload()
    expect(bar).to_have_attribute("value", str(stopped.progress["done"]))


def test_some_are_chosen_in_the_list(open_page: OpenPage) -> None:
    made = [jobs.charge_card.enqueue(f"list {number}") for number in range(3)]
    wait_until(lambda: Job.objects.filter(pk__in=[job.pk for job in made], status="DEAD").count() == 3)
    page = open_page(f"{LIST}?status=DEAD&queue=payments")
    for job in made[:2]:
        page.get_by_role("row", name=str(job)).get_by_role("checkbox").check()
    page.locator("select[name=action]").select_option(label="Retry")
    page.get_by_role("button", name="Run").or_(page.get_by_role("button", name="Go")).click()
    expect(page.get_by_text("2 jobs.")).to_be_visible()
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".messagelist")).to_contain_text("2 jobs are queued again.")
    entries = LogEntry.objects.filter(object_id__in=[str(job.pk) for job in made], change_message="Retried.")
    assert {entry.object_id for entry in entries} == {str(job.pk) for job in made[:2]}


def test_all_that_match_a_filter_are_retried(open_page: OpenPage) -> None:
    made = [jobs.says.using(queue="many").enqueue("no") for _ in range(30)]
    ids = [job.pk for job in made]
    wait_until(lambda: Job.objects.filter(pk__in=ids, status="DEAD").count() == 30)
    Job.objects.filter(pk__in=ids).update(queue="gone")  # where nobody takes them twice
    page = open_page(f"{LIST}?status=DEAD&queue=gone")
    page.get_by_role("link", name="All that match").click()
    page.get_by_role("link", name="Delete").click()
    expect(page.get_by_text("30 jobs.")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("#act-text")).to_contain_text("30 jobs")
    wait_until(lambda: not Job.objects.filter(pk__in=ids).exists())


def test_a_page_that_is_out_of_date_changes_nothing(open_page: OpenPage, site: Site) -> None:
    """Two people, one of them with a nervous finger: one retry, and one execution."""
    job = jobs.charge_card.enqueue("two people")
    wait_until(lambda: Job.objects.get(pk=job.pk).status == "DEAD")
    first, second = (open_page(f"{LIST}act/?verb=retry&ids={job.pk}") for _ in range(2))
    Mark.objects.create(label="two people: the bank is back")
    first.get_by_role("button", name="Retry").dblclick()
    expect(first.locator(".messagelist")).to_be_visible()
    wait_until(lambda: Job.objects.get(pk=job.pk).status == "DONE")
    token = Job.objects.get(pk=job.pk).fencing_token
    second.get_by_role("button", name="Retry").click()
    expect(second.locator(".messagelist")).to_contain_text("1 is left as it is: it is not DEAD, FAILED or CANCELLED")
    after = Job.objects.get(pk=job.pk)
    assert (after.status, after.attempts, after.fencing_token) == ("DONE", 1, token)


def test_who_may_only_look_sees_no_buttons_and_cannot_act(open_page: OpenPage, site: Site) -> None:
    job = jobs.charge_card.enqueue("viewer", card="4929 0000")
    wait_until(lambda: Job.objects.get(pk=job.pk).status == "DEAD")
    page = open_page(of(job), user="viewer")
    expect(page.locator(STATE)).to_have_text("dead")
    expect(page.get_by_role("link", name="Retry")).to_have_count(0)
    assert page.locator("#content button").count() == 0
    token = next(cookie["value"] for cookie in page.context.cookies() if cookie["name"] == "csrftoken")
    for verb in ("retry", "cancel", "run_now", "priority", "delete"):
        answer = page.request.post(
            f"{site.url}{LIST}act/",
            form={"verb": verb, "ids": str(job.pk), "priority": "5", "csrfmiddlewaretoken": token},
            headers={"Referer": page.url},
        )
        assert answer.status == 403, verb
    assert Job.objects.get(pk=job.pk).status == "DEAD"
    page.goto(site.url + LIST)
    assert page.locator("select[name=action], .action-checkbox").count() == 0
