"""A real site, a real worker and a real browser, for all the tests of this folder that run in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import connection, connections
from pytest_django import DjangoDbBlocker

from testproject.postgres import PROJECT_ROOT, url_of
from tests.browser import axe, chromium
from tests.browser.expecting import PATIENCE
from tests.browser.people import make_people
from tests.browser.server import Site
from tests.browser.watch import Watch
from tests.processes.conftest import test_database  # noqa: F401
from tests.support.fleet import QUICK, Fleet

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

SETTINGS = "tests.browser.settings"
ALLOW = "DJANGO_ALLOW_ASYNC_UNSAFE"

OpenPage = Callable[..., "Page"]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    pytest.importorskip("playwright", reason="needs Playwright: pip install playwright")
    executable = chromium.find()
    if executable is None:
        pytest.skip("needs Chromium: apt-get install chromium, or name one in CHROMIUM")
    with pytest.MonkeyPatch.context() as patch, chromium.launched(executable) as launched:
        # Playwright leaves an event loop in this thread, in which Django takes every query for a mistake.
        patch.setenv(ALLOW, "1")
        yield launched


@pytest.fixture(scope="package")
def database(
    browser: Browser,  # before all that takes time
    test_database: None,  # noqa: F811
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[None]:
    """One for all tests of the folder, which therefore look at their own jobs only."""
    with django_db_blocker.unblock():
        make_people()
        yield
        call_command("flush", interactive=False, verbosity=0)
        connections.close_all()


@pytest.fixture(scope="package")
def environment(database: None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != ALLOW}  # Theirs are real mistakes.
    return {
        **inherited,
        "DATABASE_URL": url_of(connection.settings_dict),
        "DJANGO_SETTINGS_MODULE": SETTINGS,
        "PYTHONPATH": str(PROJECT_ROOT),
        "RELIABLE_JOBS_JSON": json.dumps(QUICK),
    }


@pytest.fixture(scope="package")
def fleet(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """With one worker, which is there for all tests."""
    made = Fleet(environment, tmp_path_factory.mktemp("fleet"))
    made.start("--slots", "4", env={"DJANGO_SETTINGS_MODULE": SETTINGS}, ready=False)
    yield made
    made.close()


@pytest.fixture(scope="package")
def site(environment: dict[str, str], fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(environment, tmp_path_factory.mktemp("site") / "site.log")
    yield made
    made.close()


@pytest.fixture(scope="package")
def logged_in(browser: Browser, site: Site) -> Callable[[str], Any]:
    """The cookies of somebody who has logged in, once for all tests."""
    known: dict[str, Any] = {}

    def state(user: str) -> Any:
        if user not in known:
            context = browser.new_context()
            log_in(context.new_page(), site, user)
            known[user] = context.storage_state()
            context.close()
        return known[user]

    return state


def log_in(page: Page, site: Site, user: str) -> None:
    page.goto(site.url)
    page.fill("#id_username", user)
    page.fill("#id_password", user)
    page.click("[type=submit]")
    page.wait_for_url(site.url)


@pytest.fixture
def open_page(browser: Browser, site: Site, logged_in: Callable[[str], Any]) -> Iterator[OpenPage]:
    """`open_page(path="", user="boss", **options)`: a page in a context of its own. The test fails for every error there.

    `path` is below the admin's root; `options` are those of Playwright's `new_context`. `expected` names statuses of 400
    and above that the test asks for.
    """
    opened: list[tuple[BrowserContext, Watch]] = []

    def make(path: str = "", user: str | None = "boss", *, expected: tuple[int, ...] = (), **options: Any) -> Page:
        context = browser.new_context(storage_state=logged_in(user) if user else None, **options)
        context.set_default_timeout(PATIENCE)
        watch = Watch(context)
        watch.expected = set(expected)
        opened.append((context, watch))
        page = context.new_page()
        answer = page.goto(site.url + path)
        assert answer is not None
        assert answer.ok or answer.status in expected, f"{answer.status} {answer.url}:\n{site.tail()}"
        return page

    yield make
    found = []
    for context, watch in opened:
        context.close()
        found += watch.take()
    assert not found, "\n".join([*found, "", "The site's log:", site.tail()])


@pytest.fixture(scope="session")
def axe_core() -> Path:
    """Skips where axe-core is not installed."""
    if not axe.SOURCE.exists():
        pytest.skip("needs axe-core: npm ci --prefix tests/browser")
    return axe.SOURCE
