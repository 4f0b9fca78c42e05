"""Makes the pictures in docs/screenshots/: pytest tests/browser/screenshots.py. It is no test by its name, so that only
who wants new pictures runs it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from django.utils import timezone

from django_reliable_jobs.models import Worker
from testproject.postgres import PROJECT_ROOT
from tests.browser.conftest import OpenPage
from tests.browser.looks import LOOKS
from tests.browser.server import Site
from tests.browser.stage import set_the_stage

FOLDER = PROJECT_ROOT / "docs" / "screenshots"
WIDE: dict[str, Any] = {"viewport": {"width": 1200, "height": 750}}
#: File name -> page of the stage, how it is looked at.
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "overview": ("overview", WIDE),
    "overview-dark": ("overview", {**WIDE, "color_scheme": "dark"}),
    "overview-narrow": ("overview", LOOKS["390 px"]),
    "overview-vietnamese": ("overview", {**WIDE, "locale": "vi-VN"}),
    "jobs": ("dead jobs", WIDE),
    "dead-job": ("a dead job", WIDE),
    "dead-job-narrow": ("a dead job", LOOKS["390 px"]),
    "running-job": ("a running job", WIDE),
    "confirm": ("confirm a retry", WIDE),
    "schedules": ("schedules", WIDE),
    "schedule": ("a schedule", WIDE),
    "backfill": ("backfill", WIDE),
    "cron-runs": ("cron runs", WIDE),
    "workers": ("workers", WIDE),
    "worker": ("a worker", WIDE),
    "queues": ("queues", WIDE),
    "guard-claim": ("a guard claim", WIDE),
    "fences": ("fences", WIDE),
}


def test_pictures(open_page: OpenPage, site: Site) -> None:
    pages = set_the_stage()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (which, look) in PICTURES.items():
        page = open_page("password_change/", **look)
        Worker.objects.filter(host="web-2").update(last_seen=timezone.now())
        page.goto(site.url + pages[which])
        if which == "a dead job":
            page.locator("summary").first.click()
        # As high as the page: in a picture of a full page the side bar ends where the window does.
        high = page.evaluate("document.scrollingElement.scrollHeight")
        page.set_viewport_size({"width": look["viewport"]["width"], "height": max(high, look["viewport"]["height"])})
        page.evaluate("window.scrollTo(0, 0)")
        page.screenshot(path=FOLDER / f"{name}.png")
        make_small(FOLDER / f"{name}.png")
        page.context.close()


def make_small(path: Path) -> None:
    """A third of the size, where Pillow is installed."""
    with suppress(ImportError):
        from PIL import Image

        Image.open(path).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
