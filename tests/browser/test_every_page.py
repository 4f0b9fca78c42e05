"""Every page, on a desk, on a phone and at night: no serious or critical violation that axe-core knows, nothing that
stands out of the screen, no error on the console (`open_page` sees to that), and all of it in Vietnamese as well."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from django_reliable_jobs.models import GuardClaim
from tests.browser import axe
from tests.browser.conftest import OpenPage
from tests.browser.expecting import expect
from tests.browser.looks import LOOKS, check_look
from tests.browser.server import Site
from tests.browser.stage import set_the_stage, unset


@pytest.fixture(scope="module")
def pages(site: Site) -> Iterator[dict[str, str]]:
    yield set_the_stage()
    unset()


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_pleases_axe_and_fits_its_screen(
    open_page: OpenPage, site: Site, pages: dict[str, str], axe_core: Path, look: str
) -> None:
    # axe-core itself breaks the policy: it writes inline styles to measure with.
    page = open_page(bypass_csp=True, **LOOKS[look])
    wrong = []
    for name, path in pages.items():
        answer = page.goto(site.url + path)
        assert answer is not None
        assert answer.ok, path
        for violation in axe.violations(page):
            wrong.append(f"--- {name} ({path}), {look}\n{violation}")
        try:
            check_look(page, look)
        except AssertionError as error:
            wrong.append(f"--- {name}, {look}: {error}")
    assert not wrong, "\n".join(wrong)


def test_every_page_keeps_the_policy_and_is_there_in_vietnamese(
    open_page: OpenPage, site: Site, pages: dict[str, str]
) -> None:
    page = open_page(locale="vi-VN")
    for name, path in pages.items():
        page.goto(site.url + path)
        assert page.evaluate("document.documentElement.lang") == "vi", name
    page.goto(site.url + pages["a dead job"])
    expect(page.locator(".job-headline .job-badge")).to_have_text("hỏng hẳn")


def test_a_stuck_guard_is_released(open_page: OpenPage, site: Site, pages: dict[str, str]) -> None:
    page = open_page(pages["a guard claim"], user="viewer")
    assert page.locator("#content button, #content [type=submit]").count() == 0
    page = open_page(pages["a guard claim"])
    page.get_by_role("button", name="Release").click()
    expect(page.locator(".messagelist")).to_contain_text("rebuild-index is free")
    assert not GuardClaim.objects.filter(key="exclusive:rebuild-index", expires_at__gt=timezone.now()).exists()


def test_pages_in_the_middle_of_something_please_axe(
    open_page: OpenPage, site: Site, pages: dict[str, str], axe_core: Path
) -> None:
    page = open_page(pages["a new schedule"], bypass_csp=True)
    page.locator("[name=name]").fill("wrong")
    page.locator("[name=expression]").fill("99 * * * *")
    page.locator("[name=args]").fill("{")
    page.locator("[name=_save]").click()
    expect(page.locator(".errornote")).to_be_visible()
    wrong = axe.violations(page)

    page.goto(site.url + pages["backfill"])
    now = timezone.now()
    for name, when in (("start", now - timedelta(days=3)), ("end", now - timedelta(days=1))):
        page.locator(f"[name={name}_0]").fill(f"{when:%Y-%m-%d}")
        page.locator(f"[name={name}_1]").fill(f"{when:%H:%M:%S}")
    page.get_by_role("button", name="Count the fire times").click()
    expect(page.locator(".schedule-count")).to_contain_text("This range has 2 fire times.")
    wrong += axe.violations(page)

    page.goto(site.url + f"{pages['jobs']}act/?verb=cancel&filters=queue%3Dnewsletter")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#act-text")).to_contain_text("12 jobs are cancelled, or asked to stop.")
    wrong += axe.violations(page)

    page.goto(site.url + pages["overview"])
    page.get_by_role("button", name="Resume the queue newsletter").click()
    expect(page.locator(".messagelist")).to_contain_text("The queue newsletter goes on.")
    wrong += axe.violations(page)
    assert not wrong, "\n".join(wrong)
