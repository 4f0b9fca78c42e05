"""Pause and resume, from the overview and from the list."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from django_reliable_jobs.models import QueueState
from tests.support.admin.fixtures import Staff, url
from tests.support.factories import JobFactory, QueueStateFactory

pytestmark = pytest.mark.django_db

PAUSE, RESUME = (f"admin:django_reliable_jobs_queuestate_{verb}" for verb in ("pause", "resume"))


def states() -> dict[str, bool]:
    return dict(QueueState.objects.values_list("queue", "paused"))


def test_a_queue_is_paused_and_resumed_and_both_are_logged(staff: Staff) -> None:
    client = staff("view_queuestate", "pause_queue")
    JobFactory(queue="mail")
    answer = client.post(reverse(PAUSE), {"queue": "mail"}, follow=True)
    assert answer.redirect_chain == [(reverse("admin:django_reliable_jobs_overview"), 302)]
    assert "The queue mail is paused" in answer.content.decode()
    assert states() == {"mail": True}
    assert (
        "The queue mail was paused already"
        in client.post(reverse(PAUSE), {"queue": "mail"}, follow=True).content.decode()
    )
    client.post(reverse(RESUME), {"queue": "mail"})
    assert states() == {"mail": False}
    entries = LogEntry.objects.order_by("pk").values_list("object_id", "object_repr", "change_message")
    assert list(entries) == [("mail", "mail", "Paused."), ("mail", "mail", "Resumed.")]


@pytest.mark.parametrize(
    "permissions", [("view_queuestate",), ("pause_queue",), ("view_queuestate", "change_queuestate")]
)
@pytest.mark.parametrize("verb", [PAUSE, RESUME])
def test_without_the_permission_a_crafted_post_is_refused(
    staff: Staff, permissions: tuple[str, ...], verb: str
) -> None:
    QueueStateFactory(queue="mail", paused=verb == RESUME)
    before = states()
    assert staff(*permissions).post(reverse(verb), {"queue": "mail"}).status_code == 403
    action = {"action": "pause_selected", "_selected_action": ["mail"]}
    assert staff("view_queuestate").post(url("changelist", model="queuestate"), action).status_code == 403
    assert states() == before
    assert not LogEntry.objects.exists()


def test_get_and_a_post_without_the_token_change_nothing(staff: Staff) -> None:
    client = staff("view_queuestate", "pause_queue", csrf=True)
    assert client.get(reverse(PAUSE), {"queue": "mail"}).status_code == 405
    assert client.post(reverse(PAUSE), {"queue": "mail"}).status_code == 403
    assert states() == {}


@pytest.mark.parametrize("name", ["", "a b", "a,b", "x" * 101, "a\x00b"])
def test_what_is_no_name_is_said(root: Client, name: str) -> None:
    answer = root.post(reverse(PAUSE), {"queue": name}, follow=True)
    assert answer.status_code == 200
    assert "no name of a queue" in answer.content.decode()
    assert states() == {}


def test_the_list_pauses_and_resumes_many(staff: Staff) -> None:
    for name, paused in (("a", False), ("b", True), ("c", False)):
        QueueStateFactory(queue=name, paused=paused)
    client, address = staff("view_queuestate", "pause_queue"), url("changelist", model="queuestate")
    client.post(address, {"action": "pause_selected", "_selected_action": ["a", "b"]})
    assert states() == {"a": True, "b": True, "c": False}
    client.post(address, {"action": "resume_selected", "_selected_action": ["a", "b", "c"]})
    assert states() == {"a": False, "b": False, "c": False}
    assert LogEntry.objects.count() == 3
    assert client.get(url("change", "a", model="queuestate")).status_code == 200


def test_nobody_edits_the_rows(root: Client) -> None:
    QueueStateFactory(queue="a")
    assert root.get(url("add", model="queuestate")).status_code == 403
    assert root.post(url("change", "a", model="queuestate"), {"paused": ""}).status_code == 403
    assert root.post(url("delete", "a", model="queuestate"), {"post": "yes"}).status_code == 403
    assert states() == {"a": True}
