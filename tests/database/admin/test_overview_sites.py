"""The overview and the pages around it on an admin site of the project's own, and in other languages."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import reverse

from django_reliable_jobs.models import Fence, QueueState
from django_reliable_jobs.store import guards
from tests.support.factories import JobFactory, QueueStateFactory, WorkerFactory, ago
from tests.support.schedules.tools import schedule

pytestmark = pytest.mark.django_db


def addresses(site: str) -> list[str]:
    worker, row = WorkerFactory(), schedule(kwargs={"number": 1234})
    JobFactory(dead=True)
    JobFactory.create_batch(3)
    QueueStateFactory(queue="mail")
    Fence.objects.create(name="f", fencing_token=1, passed_at=ago(1))
    guards.acquire("default", "once:x", "host:1:a", None)

    def of(page: str, *args: Any) -> str:
        return reverse(f"admin:django_reliable_jobs_{page}", args=args, current_app=site)

    lists = [
        of(f"{model}_changelist")
        for model in ("cronschedule", "cronrun", "guardclaim", "fence", "worker", "queuestate")
    ]
    pages = [of("overview"), of("overview_part"), of("cronschedule_change", row.pk), of("cronschedule_add"),
             of("cronschedule_backfill", row.pk), of("worker_change", worker.pk), of("queuestate_change", "mail")]  # fmt: skip
    return [*lists, *pages, reverse("admin:app_list", args=["django_reliable_jobs"], current_app=site)]


@override_settings(ROOT_URLCONF="tests.support.admin.other_site")
def test_every_link_stays_on_its_site(root: Client) -> None:
    for address in addresses("ops"):
        assert address.startswith("/ops/")
        answer = root.get(address)
        assert answer.status_code == 200, address
        assert not re.search(r'(href|action|data-url)="/admin/', answer.content.decode()), address
    answer = root.post(reverse("admin:django_reliable_jobs_queuestate_pause", current_app="ops"), {"queue": "x"})
    assert answer["Location"] == "/ops/django_reliable_jobs/queuestate/overview/"
    assert QueueState.objects.get(queue="x").paused


@override_settings(USE_THOUSAND_SEPARATOR=True, LANGUAGE_CODE="vi")
def test_numbers_of_a_language_stay_out_of_addresses_and_drawings(root: Client) -> None:
    """With "1.234" for a thousand and "0,5" for a half."""
    for address in addresses("admin"):
        answer = root.get(address)
        assert answer.status_code == 200
        text = answer.content.decode()
        assert '<html lang="vi"' in text or "/part/" in address
        for drawn in re.findall(r'<path d="([^"]*)" class="jobs-bar', text):
            assert re.fullmatch(r"[Mvhz\d. -]+", drawn)
        for link in re.findall(r'href="(/admin/[^"?]*)', text):
            assert not re.search(r"\d[.,]\d", link)
