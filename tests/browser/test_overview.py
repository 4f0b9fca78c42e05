"""The overview in a browser: it follows what happens without a reload, and is a plain page without scripts."""

from __future__ import annotations

from typing import Any

import pytest

from django_reliable_jobs.models import Job, QueueState
from tests.browser.app import jobs
from tests.browser.conftest import OpenPage
from tests.browser.expecting import expect
from tests.browser.looks import LOOKS, check_look
from tests.support.fleet import wait_until

OVERVIEW = "django_reliable_jobs/queuestate/overview/"


def is_(job: Job, status: str) -> Any:
    wait_until(lambda: Job.objects.get(pk=job.pk).status == status, lambda: Job.objects.filter(pk=job.pk).values())


@pytest.mark.parametrize("look", LOOKS)
def test_a_queue_is_paused_and_resumed(open_page: OpenPage, look: str) -> None:
    QueueState.objects.filter(queue="reports").delete()
    page = open_page(OVERVIEW, **LOOKS[look])
    queue = page.locator("#queue-reports")
    queue.get_by_role("button", name="Pause the queue reports").click()
    expect(page.locator(".messagelist")).to_contain_text("reports is paused")
    expect(queue).to_contain_text("paused")

    waits = jobs.send_report.enqueue("paused")
    runs = jobs.keep.enqueue("another queue goes on")
    is_(runs, "DONE")
    assert Job.objects.get(pk=waits.pk).status == "QUEUED"
    expect(page.locator(".jobs-problems")).to_contain_text("The queue reports is paused, and 1 job")

    queue.get_by_role("button", name="Resume the queue reports").click()
    expect(page.locator(".messagelist")).to_contain_text("reports goes on")
    is_(waits, "DONE")
    check_look(page, look)


def test_it_does_not_ask_while_the_tab_is_hidden(open_page: OpenPage) -> None:
    page = with_clock(open_page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/part/" in request.url else None)
    with page.expect_response("**/part/"):
        page.clock.run_for(10_000)
    hide(page, True)
    asked.clear()
    page.clock.run_for(120_000)
    assert asked == []
    with page.expect_response("**/part/"):
        hide(page, False)
        page.clock.run_for(1_000)


def with_clock(open_page: OpenPage, **options: Any) -> Any:
    """The overview, where a minute passes when the test says so."""
    page = open_page(**options)
    page.clock.install()
    page.goto(page.url + OVERVIEW)
    return page


def hide(page: Any, hidden: bool) -> None:
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_a_refresh_keeps_the_focus_and_what_was_selected(open_page: OpenPage) -> None:
    page = open_page(OVERVIEW)
    page.evaluate("window.before = document.querySelector('#queue-reports')")
    page.locator("#pause-reports").focus()
    before = page.locator(".jobs-asof").inner_text()
    expect(page.locator(".jobs-asof")).not_to_have_text(before)
    assert page.evaluate("document.activeElement.id") == "pause-reports"
    assert page.evaluate("window.before === document.querySelector('#queue-reports')")


def test_it_says_when_it_cannot_refresh_and_when_somebody_has_logged_out(open_page: OpenPage) -> None:
    page = with_clock(open_page, expected=(503,))
    said = page.locator("#jobs-overview-said")
    page.route("**/part/", lambda route: route.fulfill(status=503))
    page.clock.run_for(10_000)
    expect(said).to_contain_text("could not be refreshed")
    page.unroute("**/part/")
    page.clock.run_for(60_000)
    expect(said).to_have_text("")
    page.context.clear_cookies()
    page.clock.run_for(10_000)
    expect(said).to_contain_text("log in again")


def test_it_is_a_plain_page_without_scripts(open_page: OpenPage) -> None:
    page = open_page(OVERVIEW, java_script_enabled=False)
    expect(page.locator("#queue-words")).to_be_visible()
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    page.get_by_role("button", name="Pause the queue words").click()
    expect(page.locator("#queue-words")).to_contain_text("paused")
    page.get_by_role("button", name="Resume the queue words").click()
    expect(page.locator("#queue-words")).not_to_contain_text("paused")


def test_who_may_only_look_sees_no_buttons_and_cannot_pause(open_page: OpenPage) -> None:
    page = open_page(OVERVIEW, user="viewer")
    expect(page.locator("#queue-words")).to_be_visible()
    assert page.locator("#content button, #content input:not([type=hidden])").all_inner_texts() == []
    token = next(cookie["value"] for cookie in page.context.cookies() if cookie["name"] == "csrftoken")
    answer = page.request.post(
        page.url.replace("/overview/", "/pause/"),
        form={"queue": "words", "csrfmiddlewaretoken": token},
        headers={"Referer": page.url},
    )
    assert (answer.status, QueueState.objects.filter(queue="words", paused=True).exists()) == (403, False)
