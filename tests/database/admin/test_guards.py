"""Guards, fences and workers in the admin: looked at by whoever may, and a stuck guard is released as it was seen."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_reliable_jobs.models import Fence, GuardClaim
from django_reliable_jobs.store import guards
from tests.support.admin.fixtures import Staff, url
from tests.support.factories import JobFactory, WorkerFactory, ago

pytestmark = pytest.mark.django_db

RELEASER = ("view_guardclaim", "change_guardclaim")


def claim(key: str = "exclusive:import", ttl: float | None = 600) -> GuardClaim:
    assert guards.acquire("default", key, "host:1:a", ttl) is not None
    return GuardClaim.objects.get(key=key)


def release(client: Client, row: GuardClaim, token: Any = None) -> Any:
    data = {"token": row.fencing_token if token is None else token}
    return client.post(url("release", row.pk, model="guardclaim"), data, follow=True)


def is_free(key: str = "exclusive:import") -> bool:
    return guards.acquire("default", key, "host:2:b", 600) is not None


def said(answer: Any) -> str:
    return " ".join(str(message) for message in answer.context["messages"])


@pytest.mark.parametrize("ttl", [600, None])
def test_a_stuck_guard_is_released(staff: Staff, ttl: float | None) -> None:
    row = claim(ttl=ttl)
    assert not is_free()
    client = staff(*RELEASER)
    page = client.get(url("change", row.pk, model="guardclaim")).content.decode()
    assert f'name="token" value="{row.fencing_token}"' in page
    assert "another may begin while that one goes on" in page
    assert "is free" in said(release(client, row))
    assert is_free()
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.object_repr) == (str(row.pk), "exclusive:import")
    assert str(row.fencing_token) in entry.change_message


def test_only_the_claim_that_was_seen_is_released(root: Client) -> None:
    """Between the look and the click the key was freed, and somebody else took it."""
    seen = claim()
    guards.release("default", seen.key, seen.fencing_token)
    assert is_free()  # and is taken by that
    assert "nothing was done" in said(release(root, seen))
    assert not guards.acquire("default", seen.key, "host:3:c", 600)
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("token", ["", "x", "-1", "9" * 30, "٣"])
def test_a_token_that_is_none_does_nothing(root: Client, token: str) -> None:
    row = claim()
    assert "nothing was done" in said(release(root, row, token))
    assert not is_free()


def test_what_is_done_or_over_has_no_button_and_stays(root: Client) -> None:
    done, over = claim("run:done"), claim("run:over")
    guards.renew("default", done.key, done.fencing_token, None, done=True)
    guards.release("default", over.key, over.fencing_token)
    for row, state in ((done, "done"), (over, "free")):
        text = root.get(url("change", row.pk, model="guardclaim")).content.decode()
        assert 'name="token"' not in text
        assert f'<div class="readonly">{state}</div>' in text
        assert "nothing was done" in said(release(root, row))


def test_viewers_get_no_button_and_403(staff: Staff) -> None:
    row = claim()
    viewer = staff("view_guardclaim")
    assert 'name="token"' not in viewer.get(url("change", row.pk, model="guardclaim")).content.decode()
    assert release(viewer, row).status_code == 403
    assert release(staff("view_job"), row).status_code == 403
    client = staff(*RELEASER, csrf=True)
    assert release(client, row).status_code == 403
    assert client.get(url("release", row.pk, model="guardclaim")).status_code == 405
    assert not is_free()


def test_the_list_shows_who_holds_what(root: Client) -> None:
    claim("run:one")
    free = claim("run:two")
    guards.release("default", free.key, free.fencing_token)
    address = url("changelist", model="guardclaim")
    for query, keys in (({}, {"run:one", "run:two"}), ({"held": "yes"}, {"run:one"}), ({"held": "no"}, {"run:two"}),
                        ({"q": "one"}, {"run:one"})):  # fmt: skip
        assert {row.key for row in root.get(address, query).context["cl"].result_list} == keys
    assert "Redis" in root.get(address).content.decode()


@pytest.mark.parametrize("model", ["guardclaim", "fence", "worker"])
def test_nobody_edits_the_rows(root: Client, model: str) -> None:
    rows = {"guardclaim": claim(), "fence": Fence.objects.create(name="a fence", fencing_token=7, passed_at=ago(5)),
            "worker": WorkerFactory()}  # fmt: skip
    pk = rows[model].pk
    assert root.get(url("change", pk, model=model)).status_code == 200
    assert root.get(url("add", model=model)).status_code == 403
    assert root.post(url("change", pk, model=model), {}).status_code == 403
    assert root.post(url("delete", pk, model=model), {"post": "yes"}).status_code == 403
    many = {"action": "delete_selected", "post": "yes", "_selected_action": [pk]}
    assert root.post(url("changelist", model=model), many).status_code == 403


def test_fences_are_listed(root: Client) -> None:
    Fence.objects.create(name="stock/<b>7</b>", fencing_token=123_456, passed_at=ago(5))
    text = root.get(url("changelist", model="fence")).content.decode()
    assert "stock/&lt;b&gt;7&lt;/b&gt;" in text
    assert [row.pk for row in root.get(url("changelist", model="fence"), {"q": "STOCK"}).context["cl"].result_list]


def test_a_worker_shows_what_it_runs_to_those_who_may_see_jobs(root: Client, staff: Staff) -> None:
    worker, other = WorkerFactory(host="pod", pid=7, busy=2), WorkerFactory(last_seen=ago(300), stopping=True)
    mine, its = JobFactory(running=True, locked_by=worker.pk), JobFactory(running=True, locked_by=other.pk)
    JobFactory(done=True, locked_by=worker.pk)
    text = root.get(url("change", worker.pk, model="worker")).content.decode()
    assert str(mine) in text
    assert url("change", mine.pk) in text
    assert str(its) not in text
    assert "2 of 8 busy" in text
    assert str(mine) not in staff("view_worker").get(url("change", worker.pk, model="worker")).content.decode()
    listed = root.get(url("changelist", model="worker")).content.decode()
    assert "not seen" in listed
    assert "at work" in listed
