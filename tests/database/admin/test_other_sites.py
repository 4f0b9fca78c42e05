"""Our pages on an admin site of another name, and with django-unfold's templates: every link is followed.

A process for each, since the settings are others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from testproject.postgres import PROJECT_ROOT
from tests.browser.people import make_people
from tests.browser.stage import set_the_stage

APP = "django_reliable_jobs"
VIEWS = {
    f"{APP}_{model}_{page}"
    for model in ("job", "cronschedule", "cronrun", "worker", "queuestate", "guardclaim", "fence")
    for page in ("changelist", "change")
} | {
    f"{APP}_overview",
    f"{APP}_cronschedule_add",
    f"{APP}_cronschedule_backfill",
    f"{APP}_job_act",
    f"{APP}_job_history",
}
#: What has to stand on a page, whatever the templates around it.
CONTENT = {
    f"{APP}_overview": ["Queues", "mail", "Workers", "web-2", "Schedules", "stock-report"],
    f"{APP}_job_changelist": ["shop.send_invoice #"],
    f"{APP}_job_change": ["Arguments", "Fencing token", "Attempts"],
    f"{APP}_cronschedule_changelist": ["stock-report", "0 6 * * *"],
    f"{APP}_cronschedule_change": ["Asia/Ho_Chi_Minh", "Next fire times", "Run now", "Backfill"],
    f"{APP}_cronschedule_backfill": ["Count the fire times"],
    f"{APP}_cronrun_changelist": ["stock-report"],
    f"{APP}_worker_changelist": ["web-2:4711"],
    f"{APP}_worker_change": ["Jobs that it runs", "shop.import_records #"],
    f"{APP}_queuestate_changelist": ["newsletter"],
    f"{APP}_guardclaim_changelist": ["exclusive:rebuild-index"],
    f"{APP}_guardclaim_change": ["Release"],
    f"{APP}_fence_changelist": ["search-index"],
    f"{APP}_job_act": ["retry"],
}


def follow(env: dict[str, str], settings: str, site: str, user: str = "boss", language: str = "en") -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.sites.tour", site, user, language],
        cwd=PROJECT_ROOT, env=env | {"DJANGO_SETTINGS_MODULE": settings}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    bad = {path: page["status"] for path, page in found["pages"].items() if page["status"] != 200}
    assert not bad, f"{bad}\n{done.stderr[-4000:]}"
    assert found["strangers"] == [], "links to another site's pages"
    return found


@pytest.mark.parametrize(
    ("settings", "site"),
    [("settings", "operations"), ("unfold_settings", "admin"), ("unfold_settings", "operations")],
)
def test_every_page_is_there_with_its_content(subprocess_env: dict[str, str], settings: str, site: str) -> None:
    make_people()
    set_the_stage()
    found = follow(subprocess_env, f"tests.support.sites.{settings}", site)
    views: dict[str, list[str]] = {}
    for page in found["pages"].values():
        views.setdefault(page["view"].partition(":")[2], []).append(page["text"])
    assert VIEWS - set(views) == set()
    missing = [
        (view, wanted) for view, texts in CONTENT.items() for wanted in texts
        if not any(wanted.casefold() in text.casefold() for text in views[view])
    ]  # fmt: skip
    assert missing == []
    if settings == "settings":
        assert "Xem" not in str(views)
        found = follow(subprocess_env, "tests.support.sites.settings", site, "viewer", "vi")
        assert "hàng đợi" in str(found["pages"])
