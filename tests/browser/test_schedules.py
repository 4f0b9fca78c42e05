"""A schedule is made in the browser: its preview, its first run, and what viewers do not see."""

from __future__ import annotations

import pytest

from django_reliable_jobs.models import CronRun, CronSchedule
from tests.browser.conftest import OpenPage
from tests.browser.expecting import expect
from tests.browser.looks import LOOKS, check_look
from tests.browser.server import Site
from tests.support.fleet import wait_until
from tests.support.probes.models import Mark

SCHEDULES = "django_reliable_jobs/cronschedule/"


@pytest.mark.parametrize("look", LOOKS)
def test_a_schedule_is_made_previewed_and_runs(open_page: OpenPage, look: str) -> None:
    name = f"report {look}"
    page = open_page(f"{SCHEDULES}add/", **LOOKS[look])
    page.get_by_label("Name", exact=False).first.fill(name)
    page.locator("[name=job_name]").select_option("browser.send_report")
    preview = page.locator("#schedule-preview")
    page.locator("[name=expression]").fill("61 * * * *")
    expect(preview.locator(".schedule-problem")).to_be_visible()
    page.locator("[name=expression]").fill("30 2 * * 1")
    page.locator("[name=timezone]").fill("Asia/Ho_Chi_Minh")
    expect(preview).to_contain_text("Asia/Ho_Chi_Minh")
    expect(preview).to_contain_text("02:30")
    expect(preview).to_contain_text("19:30")
    page.locator("[name=expression]").fill("@every 2s")
    page.locator("[name=kwargs]").fill(f'{{"label": "{name}"}}')
    check_look(page, look)
    page.locator("[name=_continue]").click()
    expect(page.locator(".messagelist")).to_contain_text(name)

    wait_until(lambda: Mark.objects.filter(label=f"{name}: sent").exists())
    page.get_by_role("link", name="Its runs").click()
    expect(page.locator("#result_list")).to_contain_text(name)
    expect(page.locator("#result_list")).to_contain_text("done")
    check_look(page, look)
    page.go_back()
    page.get_by_role("button", name="Pause").first.click()
    expect(page.get_by_role("button", name="Resume").first).to_be_visible()
    assert CronSchedule.objects.get(name=name).paused
    before = CronRun.objects.filter(name=name, manual=True).count()
    page.get_by_role("button", name="Run now").first.click()
    wait_until(lambda: CronRun.objects.filter(name=name, manual=True).count() == before + 1)
    check_look(page, look)


def test_a_schedule_is_made_without_scripts(open_page: OpenPage) -> None:
    page = open_page(f"{SCHEDULES}add/", java_script_enabled=False)
    page.locator("[name=name]").fill("plain")
    page.locator("[name=job_name]").select_option("browser.send_report")
    page.locator("[name=expression]").fill("15 4 * * *")
    page.locator("#schedule-preview-button").click()
    expect(page.locator("#schedule-preview")).to_contain_text("04:15")
    page.locator("[name=_save]").click()
    expect(page.locator(".messagelist")).to_contain_text("plain")
    assert CronSchedule.objects.filter(name="plain").exists()


def test_who_may_only_look_sees_no_buttons_and_cannot_run(open_page: OpenPage, site: Site) -> None:
    schedule = CronSchedule.objects.exclude(source="").first() or CronSchedule.objects.first()
    assert schedule is not None
    page = open_page(f"{SCHEDULES}{schedule.pk}/change/", user="viewer", expected=(403,))
    expect(page.get_by_role("heading", name="Next fire times")).to_be_visible()
    assert page.locator("#content button, #content [type=submit]").count() == 0
    token = next(cookie["value"] for cookie in page.context.cookies() if cookie["name"] == "csrftoken")
    for verb in ("run", "pause", "resume", "backfill"):
        url = f"{site.url}{SCHEDULES}{schedule.pk}/{verb}/"
        answer = page.request.post(url, form={"csrfmiddlewaretoken": token}, headers={"Referer": page.url})
        assert answer.status == 403, url
    answer = page.goto(f"{site.url}{SCHEDULES}add/")
    assert answer is not None
    assert answer.status == 403
