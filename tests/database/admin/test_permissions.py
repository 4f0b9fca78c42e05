"""Who may see and do what on the pages of jobs."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import AnonymousUser, User
from django.test import Client, RequestFactory
from django.urls import path, reverse

from django_reliable_jobs.admin import register
from django_reliable_jobs.admin.base import ADMINS
from django_reliable_jobs.models import Job
from tests.support.admin.fixtures import Staff, url
from tests.support.factories import JobFactory, ago

pytestmark = pytest.mark.django_db

NEEDS = {
    "retry": "retry_job", "cancel": "cancel_job", "run_now": "change_job", "priority": "change_job",
    "delete": "delete_job",
}  # fmt: skip
#: What each verb can change.
TRAIT = {"retry": "dead", "cancel": "", "run_now": "", "priority": "", "delete": "dead"}

site = AdminSite(name="operations")
register(site)
urlpatterns = [path("ops/", site.urls), path("admin/", AdminSite().urls)]


def act(client: Client, verb: str, **form: Any) -> int:
    return client.post(url("act"), {"verb": verb, "priority": "3", **form}).status_code


@pytest.mark.parametrize("verb", NEEDS)
def test_a_verb_needs_its_permission_and_no_other(staff: Staff, verb: str) -> None:
    job = JobFactory(run_at=ago(-3600), **{TRAIT[verb]: True} if TRAIT[verb] else {})
    others = {*NEEDS.values(), "add_job", "view_job"} - {NEEDS[verb]}
    may_not, may = staff(*others), staff("view_job", NEEDS[verb])
    before = Job.objects.values().get()
    assert may_not.get(url("act", verb=verb, ids=job.pk)).status_code == 403
    assert act(may_not, verb, ids=job.pk) == 403
    assert act(may_not, verb, filters="name=probes.noop") == 403
    assert Job.objects.values().get() == before
    assert may.get(url("act", verb=verb, ids=job.pk)).status_code == 200
    assert act(may, verb, ids=job.pk) == 302
    assert Job.objects.values().first() != before


def test_with_a_permission_but_without_that_to_view_nothing_goes(staff: Staff) -> None:
    job = JobFactory(dead=True)
    client = staff("retry_job")
    assert act(client, "retry", ids=job.pk) == 403
    assert client.get(url("change", job.pk)).status_code == 403
    assert client.get(url("changelist")).status_code == 403


def test_who_may_only_view_sees_no_buttons_and_can_post_nothing(staff: Staff) -> None:
    job = JobFactory(dead=True)
    client = staff("view_job")
    page = client.get(url("changelist", status="DEAD"))
    text = page.content.decode()
    assert page.status_code == 200
    assert "All that match" not in text
    assert 'name="action"' not in text
    assert client.get(url("act", filters="status=DEAD")).status_code == 403
    assert client.post(url("changelist"), {"action": "retry", "_selected_action": [job.pk]}).status_code == 403
    assert client.post(url("change", job.pk), {"status": "QUEUED"}).status_code == 403
    assert Job.objects.get().status == "DEAD"


@pytest.mark.parametrize("name", ["add", "delete", "change"])
def test_even_a_superuser_has_no_form_that_writes(root: Client, name: str) -> None:
    job = JobFactory(dead=True)
    before = Job.objects.values().get()
    address = url(name) if name == "add" else url(name, job.pk)
    assert root.post(address, {"name": "x", "status": "DONE", "post": "yes"}).status_code == 403
    if name != "change":
        assert root.get(address).status_code == 403
    assert Job.objects.values().get() == before


def test_csrf_is_enforced(staff: Staff) -> None:
    job = JobFactory(dead=True)
    client = staff("view_job", "retry_job", csrf=True)
    assert act(client, "retry", ids=job.pk) == 403
    assert Job.objects.get().status == "DEAD"
    page = client.get(url("act", verb="retry", ids=job.pk))
    token = str(page.context["csrf_token"])
    assert act(client, "retry", ids=job.pk, csrfmiddlewaretoken=token) == 302
    assert Job.objects.get().status == "QUEUED"


@pytest.mark.parametrize("method", ["put", "patch", "delete"])
def test_other_methods(root: Client, method: str) -> None:
    job = JobFactory(dead=True)
    assert getattr(root, method)(url("act", verb="retry", ids=job.pk)).status_code == 405
    assert getattr(root, method)(url("change", job.pk)).status_code == 403


def test_who_is_not_logged_in_is_asked_to(client: Client) -> None:
    job = JobFactory(dead=True)
    for address in (url("changelist"), url("change", job.pk), url("act")):
        assert client.get(address).headers["Location"].startswith("/admin/login/")
    assert act(client, "retry", ids=job.pk) == 302
    assert Job.objects.get().status == "DEAD"


@pytest.mark.urls("tests.database.admin.test_permissions")
def test_the_pages_of_another_site_lead_to_that_site(root: Client) -> None:
    job = JobFactory(dead=True)
    page = root.get(f"/ops/django_reliable_jobs/job/{job.pk}/change/")
    text = page.content.decode()
    assert page.status_code == 200
    assert f"/ops/django_reliable_jobs/job/act/?verb=retry&amp;ids={job.pk}" in text
    assert "/admin/django_reliable_jobs" not in text
    listed = root.get("/ops/django_reliable_jobs/job/?status=DEAD").content.decode()
    assert "/ops/django_reliable_jobs/job/act/" in listed
    assert "/admin/django_reliable_jobs" not in listed
    done = root.post("/ops/django_reliable_jobs/job/act/", {"verb": "retry", "ids": str(job.pk)})
    assert done.headers["Location"] == f"/ops/django_reliable_jobs/job/{job.pk}/change/"


def test_every_page_of_the_app_is_on_another_site_and_registering_twice_is_no_error() -> None:
    register(site)
    assert set(ADMINS) <= set(site._registry)
    assert not site._registry.keys() - ADMINS.keys()


def test_permissions_are_those_of_the_user_not_of_the_site() -> None:
    request = RequestFactory().get("/")
    request.user = AnonymousUser()
    admin: Any = site._registry[Job]
    assert admin.verbs(request) == []
    request.user = User(is_superuser=True, is_active=True)
    assert [verb.name for verb in admin.verbs(request)] == list(NEEDS)


def test_the_permissions_can_be_given(staff: Staff) -> None:
    staff("retry_job", "cancel_job", "pause_queue", "run_schedule")
    assert reverse("admin:app_list", args=["django_reliable_jobs"])
