"""The browser tests can fail: what must not happen on a page is seen when it does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import axe
from tests.browser.conftest import OpenPage
from tests.browser.csp import POLICY
from tests.browser.server import Site
from tests.browser.watch import Watch

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BAD = {
    "an inline script": ("<script>document.title = 'run'</script>", "Content Security Policy"),
    "an inline style": ("<p style='color: red'>red</p>", "Content Security Policy"),
    "a missing file": ("<script src='/nowhere.js'></script>", "404 GET"),
    "an error in a script": ("<script src='/throws.js'></script>", "script error: oh no"),
    "an alert": ("<script src='/alerts.js'></script>", "alert: hello"),
}
SCRIPTS = {"throws.js": "throw new Error('oh no')", "alerts.js": "alert('hello')"}


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_on_a_page_is_seen(browser: Browser, what: str) -> None:
    body, expected = BAD[what]
    context = browser.new_context()
    watch = Watch(context)
    page = context.new_page()
    page.route("**/*", lambda route: route.fulfill(status=404, body=""))
    page.route("**/bad", lambda route: route.fulfill(
        body=f"<!doctype html><title>bad</title>{body}", content_type="text/html",
        headers={"Content-Security-Policy": POLICY},
    ))  # fmt: skip
    for name in SCRIPTS:
        page.route(f"**/{name}", lambda route: route.fulfill(
            body=SCRIPTS[route.request.url.rpartition("/")[2]], content_type="text/javascript"
        ))  # fmt: skip
    page.goto("http://localhost/bad")
    assert any(expected in found for found in watch.take()), watch.found
    assert page.title() == "bad"
    context.close()


def test_djangos_own_pages_keep_the_policy_and_please_axe(open_page: OpenPage, site: Site, axe_core: Path) -> None:
    """So what is wrong on ours is ours."""
    page = open_page()
    assert axe.violations(page) == []
    page.goto(site.url + "auth/user/")
    page.goto(site.url + "auth/user/add/")
    page.goto(site.url + "shop/product/")


def test_axe_finds_a_picture_without_text(browser: Browser, axe_core: Path) -> None:
    page = browser.new_page()
    page.set_content("<!doctype html><html lang=en><title>x</title><main><h1>x</h1><img src='data:,'></main></html>")
    (found,) = axe.violations(page)
    assert found.startswith("critical: image-alt: ")
    page.context.close()
