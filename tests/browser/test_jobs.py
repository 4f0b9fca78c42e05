"""Somebody is called at night: a job has died, another one does not end. In a browser, with a real worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.utils import timezone

from django_reliable_jobs.models import Job
from tests.browser.app import jobs
from tests.browser.conftest import OpenPage, log_in
from tests.browser.expecting import expect
from tests.browser.looks import LOOKS, check_look
from tests.browser.server import Site
from tests.support.factories import ago
from tests.support.fleet import wait_until
from tests.support.probes.models import Mark

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


def test_the_page_of_a_job_follows_it_while_its_traceback_is_read(open_page: OpenPage) -> None:
    """V03: with the focus in the traceback and the pointer on a button; what is unfolded stays, and it says as of when."""
    job = Job.objects.create(name="nobody.knows", queue="nowhere", status="FAILED", attempts=1, run_at=ago(-86_400))
    job.attempt_set.create(
        fencing_token=1,
        attempt=1,
        status="FAILED",
        finished_at=timezone.now(),
        error_kind="OSError",
        traceback="line\n" * 200,
    )
    page = open_page(of(job))
    expect(page.locator(STATE)).to_have_text("failed")
    as_of = page.locator(".jobs-asof").inner_text()
    assert as_of.startswith("As of ")
    page.get_by_text("Traceback").click()
    page.evaluate(
        "document.querySelector('details pre').scrollTop = 300; window.read = document.querySelector('details pre')"
    )
    page.locator("details pre").focus()
    page.get_by_role("link", name="Retry").hover()
    stays(page)
    Job.objects.filter(pk=job.pk).update(status="DEAD", finished_at=timezone.now())
    expect(page.locator(STATE)).to_have_text("dead")
    expect(page.get_by_role("link", name="Cancel")).to_have_count(0)
    assert page.locator(".jobs-asof").inner_text() != as_of
    assert page.evaluate(
        "document.activeElement === window.read && window.read.isConnected && window.read.scrollTop === 300"
    )
    assert page.evaluate("document.querySelector('details').open")
    assert still_there(page)


def test_the_page_of_a_job_says_when_it_cannot_be_refreshed(open_page: OpenPage) -> None:
    """V03."""
    job = Job.objects.create(name="nobody.knows", queue="nowhere", status="FAILED", attempts=1, run_at=ago(-86_400))
    page = open_page(expected=(503,))
    page.clock.install()
    page.goto(page.url + of(job))
    said = page.locator(".jobs-said")
    page.route("**/change/", lambda route: route.fulfill(status=503))
    page.clock.run_for(10_000)
    expect(said).to_contain_text("could not be refreshed, it may be out of date")
    expect(said).to_be_visible()
    page.unroute("**/change/")
    page.clock.run_for(60_000)
    expect(said).to_have_text("")
    job.delete()
    page.clock.run_for(10_000)
    expect(said).to_contain_text("the job is deleted, or you are logged out")


def many_waiting(queue: str, count: int) -> None:
    Job.objects.bulk_create(Job(name="nobody.knows", queue=queue, run_at=ago(-86_400)) for _ in range(count))


def test_all_that_match_says_done_and_what_failed_on_the_way(open_page: OpenPage) -> None:
    """V10."""
    many_waiting("tally", 700)
    page = open_page(f"{LIST}act/?verb=cancel&filters=queue%3Dtally%26status%3DQUEUED", expected=(502,))
    answers = iter([502, 0, 502])

    def answer(route: Any) -> None:
        status = next(answers, 0) if route.request.headers.get("accept") == "application/json" else 0
        route.fulfill(status=status) if status else route.continue_()

    expect(page.get_by_text("700 jobs.")).to_be_visible()
    with small_steps():
        page.route(re.compile(r"/act/"), answer)
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#act-title")).to_have_text("Under way")
        expect(page.locator("#act-problem")).to_contain_text("got no answer")
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("#act-problem")).to_contain_text("got no answer")
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("#act-title")).to_have_text("Done")
    expect(page.locator("#act-text")).to_contain_text("700 jobs are cancelled")
    expect(page.locator("#act-problem")).to_contain_text("more jobs than these may have been changed")
    expect(page.get_by_role("button", name="Stop here")).to_be_hidden()
    page.get_by_role("link", name="Back to the list").click()
    expect(page).to_have_url(re.compile(r"queue=tally"))


@pytest.mark.parametrize("scripts", [True, False], ids=["with a script", "without"])
def test_all_that_match_is_stopped_and_says_how_many(open_page: OpenPage, scripts: bool) -> None:
    """V10."""
    many_waiting("stopped", 500)
    page = open_page(f"{LIST}act/?verb=cancel&filters=queue%3Dstopped%26status%3DQUEUED", java_script_enabled=scripts)
    with small_steps():
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Stop here").click()
        expect(page.locator("#act-title")).to_have_text("Stopped")
    done = Job.objects.filter(queue="stopped", status="CANCELLED").count()
    assert 0 < done < 500
    expect(page.locator("#act-text")).to_contain_text(f"{done} jobs are cancelled")
    expect(page.locator("#act-text")).to_contain_text("It was stopped")
    Job.objects.filter(queue="stopped").delete()


@contextmanager
def small_steps() -> Iterator[None]:
    """A change of one job takes 5 ms, so that a POST, which goes on for a second, does some two hundred."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE OR REPLACE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(0.005); RETURN NEW; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER dawdle BEFORE UPDATE ON django_reliable_jobs_job FOR EACH ROW"
            " WHEN (NEW.queue IN ('tally', 'stopped')) EXECUTE FUNCTION public.dawdle()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER dawdle ON django_reliable_jobs_job")
