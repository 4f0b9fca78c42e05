"""The pages are shown whatever a row holds, and show the others (P01)."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest
from django.contrib.admin import site
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, RequestFactory, override_settings
from django.urls import reverse
from django.utils import timezone

from django_reliable_jobs.admin.jobs import all_matching as jobs_walk
from django_reliable_jobs.models import CronRun, GuardClaim, Job, JobStatus, QueueState, Worker
from django_reliable_jobs.values.batch_size import BatchSize
from tests.support.admin.fixtures import url
from tests.support.factories import (
    JobAttemptFactory,
    JobCheckpointFactory,
    JobFactory,
    QueueStateFactory,
    WorkerFactory,
    ago,
)
from tests.support.poison import CHANGES, COLUMNS, MOMENTS, drop_the_constraint, poison
from tests.support.schedules.tools import schedule

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _anything_goes(db: None) -> None:
    drop_the_constraint()


def shown(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return answer.content.decode()


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("column", COLUMNS)
def test_lists_and_pages_of_jobs_with_moments_beyond_the_calendar(root: Client, column: str, zone: str) -> None:
    good = JobFactory(name="probes.good")
    jobs = []
    for value in MOMENTS:
        for state in ({}, {"running": True}, {"dead": True}):
            jobs.append(JobFactory(**state))
            JobAttemptFactory(job=jobs[-1])
            poison(f"{column} = '{value}'", jobs[-1].pk)
    with override_settings(TIME_ZONE=zone), timezone.override(zone):
        assert "probes.good" in shown(root, url("changelist"))
        for status in ("QUEUED", "RUNNING", "DEAD"):
            shown(root, url("changelist", status=status))
        shown(root, url("change", good.pk))
        for job in jobs:
            shown(root, url("change", job.pk))
        shown(root, reverse("admin:django_reliable_jobs_overview"))


@pytest.mark.parametrize("change", [change for change in CHANGES if not change.startswith(COLUMNS)])
def test_lists_and_pages_of_jobs_with_other_nonsense(root: Client, change: str) -> None:
    good, bad = JobFactory(name="probes.good"), JobFactory(dead=True)
    JobCheckpointFactory(job=bad)
    poison(change, bad.pk)
    for address in (url("changelist"), url("changelist", status="DEAD"), url("changelist", q="probes.good")):
        shown(root, address)
    assert "probes.good" in shown(root, url("changelist"))
    shown(root, url("change", good.pk))
    shown(root, url("change", bad.pk))
    shown(root, reverse("admin:django_reliable_jobs_overview"))


MODELS = {
    "queuestate": ("changed_at",), "worker": ("started_at", "last_seen"),
    "cronrun": ("scheduled_for", "skipped_through", "job_finished_at", "fired_at"), "guardclaim": ("claimed_at", "expires_at"),
    "cronschedule": ("starts_at", "ends_at", "fired_through", "next_fire_at", "waiting_for", "resumed_at"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "column"), [(model, column) for model, columns in MODELS.items() for column in columns]
)
@pytest.mark.parametrize("value", MOMENTS)
def test_lists_and_pages_of_everything_else(root: Client, model: str, column: str, value: str) -> None:
    QueueStateFactory()
    WorkerFactory()
    CronRun.objects.create(name="report", scheduled_for=ago(60), outcome="enqueued", fired_at=ago(60))
    GuardClaim.objects.create(key="once:x", owner="me", fencing_token=1, claimed_at=ago(5))
    schedule()
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE django_reliable_jobs_{model} SET {column} = '{value}'")
    shown(root, url("changelist", model=model))
    for row in (QueueState, Worker, CronRun, GuardClaim):
        if row._meta.model_name == model:
            assert root.get(url("change", row.objects.values_list("pk", flat=True).get(), model=model)).status_code in (
                200,
                302,
            )
    if model == "cronschedule":
        [[pk]] = _ids()
        shown(root, url("change", pk, model=model))
    shown(root, reverse("admin:django_reliable_jobs_overview"))


def _ids() -> list[tuple[int]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM django_reliable_jobs_cronschedule")
        return cursor.fetchall()


def test_a_walk_over_many_that_read_the_same_ends(root: Client) -> None:
    for _ in range(7):
        poison("finished_at = 'infinity'", JobFactory(dead=True).pk)
    request = RequestFactory().get("/")
    request.user = User.objects.get(username="root")
    walk = jobs_walk.Walk(site._registry[Job], request, "status=DEAD", (JobStatus.DEAD,))  # type: ignore[arg-type]
    assert 0 < len(list(islice(walk.batches(jobs_walk.Cursor(), BatchSize(2, 10.0)), 20))) < 20


@pytest.mark.parametrize("far", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_addresses_with_far_moments(root: Client, far: datetime) -> None:
    JobFactory(dead=True)
    for status in ("DEAD", "DONE"):
        begin = f'["{far.isoformat()}", 5]'
        assert root.get(url("changelist", status=status) + f"&from={begin}").status_code == 200
    assert Job.objects.count() == 1
