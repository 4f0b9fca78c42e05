"""What can be done to any schedule from the admin: pause, resume, run now, backfill; and the preview."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from django_reliable_jobs.admin.schedules.preview import preview
from django_reliable_jobs.models import CronRun, CronSchedule, Job
from tests.database.admin.test_schedules import FORM
from tests.support.admin.fixtures import Staff, url
from tests.support.probes.jobs import note
from tests.support.schedules.clock import utc
from tests.support.schedules.tools import schedule

pytestmark = pytest.mark.django_db

RUNNER = ("view_cronschedule", "run_schedule")
VERBS = ("pause", "resume", "run", "backfill")


def act(client: Client, verb: str, row: CronSchedule, **data: Any) -> Any:
    return client.post(url(verb, row.pk, model="cronschedule"), data, follow=True)


def said(answer: Any) -> str:
    return " ".join(str(message) for message in answer.context["messages"])


def a_range(start: datetime, end: datetime) -> dict[str, str]:
    return {
        "start_0": f"{start:%Y-%m-%d}", "start_1": f"{start:%H:%M:%S}",
        "end_0": f"{end:%Y-%m-%d}", "end_1": f"{end:%H:%M:%S}",
    }  # fmt: skip


def test_pause_resume_and_run_now_of_one(staff: Staff) -> None:
    client, row = staff(*RUNNER), schedule()
    CronSchedule.objects.update(source="probes")  # those in code as well
    assert "is paused" in said(act(client, "pause", row))
    assert CronSchedule.objects.get().paused
    assert "was paused already" in said(act(client, "pause", row))
    assert "fires again" in said(act(client, "resume", row))
    assert not CronSchedule.objects.get().paused
    text = said(act(client, "run", row))
    made = Job.objects.get()
    assert f"job {made.pk}" in text
    assert CronRun.objects.get().manual
    messages = LogEntry.objects.order_by("pk").values_list("object_id", "change_message")
    assert [message for _id, message in messages] == ["Paused.", "Resumed.", f"Run now: job {made.pk}."]
    assert {object_id for object_id, _message in messages} == {str(row.pk)}


def test_pause_resume_and_run_now_of_many(staff: Staff) -> None:
    client = staff(*RUNNER)
    rows = [schedule(name=name) for name in "abc"]
    some = {"_selected_action": [row.pk for row in rows[:2]]}
    address = url("changelist", model="cronschedule")
    client.post(address, {"action": "pause_selected", **some})
    assert [row.paused for row in CronSchedule.objects.order_by("name")] == [True, True, False]
    client.post(address, {"action": "run_selected", **some})
    assert Job.objects.count() == 2
    client.post(address, {"action": "resume_selected", **some})
    assert not CronSchedule.objects.filter(paused=True).exists()
    assert LogEntry.objects.count() == 6


def test_what_cannot_be_done_is_said_and_the_others_are_done(root: Client) -> None:
    rows = [schedule(name="a"), schedule(name="b")]
    CronSchedule.objects.filter(name="a").update(expression="nonsense", job_name="nobody.knows", paused=True)
    for action in ("run_selected", "resume_selected"):
        values = {"action": action, "_selected_action": [row.pk for row in rows]}
        answer = root.post(url("changelist", model="cronschedule"), values, follow=True)
        assert answer.status_code == 200
        assert re.search("nobody.knows|nonsense", said(answer))
    assert Job.objects.count() == 1


@pytest.mark.parametrize("verb", VERBS)
def test_viewers_and_editors_get_403(staff: Staff, verb: str) -> None:
    row = schedule()
    for permissions in (
        ("view_cronschedule",),
        ("view_cronschedule", "change_cronschedule", "add_cronschedule", "delete_cronschedule"),
        ("run_schedule",),
    ):
        assert act(staff(*permissions), verb, row).status_code == 403
    many = {"action": f"{verb}_selected", "_selected_action": [row.pk]}
    assert staff("view_cronschedule").post(url("changelist", model="cronschedule"), many).status_code == 403
    assert not CronSchedule.objects.get().paused
    assert not Job.objects.exists()
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("verb", VERBS)
def test_neither_get_nor_a_post_without_the_token_changes_anything(staff: Staff, verb: str) -> None:
    row = schedule()
    client = staff(*RUNNER, csrf=True)
    before = CronSchedule.objects.values().get()
    assert client.get(url(verb, row.pk, model="cronschedule")).status_code == (200 if verb == "backfill" else 405)
    assert act(client, verb, row, _confirm="1").status_code == 403
    assert CronSchedule.objects.values().get() == before
    assert not Job.objects.exists()


@pytest.mark.parametrize("verb", VERBS)
def test_one_that_is_not_there(root: Client, verb: str) -> None:
    row = schedule()
    CronSchedule.objects.all().delete()
    assert act(root, verb, row).status_code == 404


# --- backfill


def test_a_backfill_says_how_many_fire_times_there_are_before_it_makes_jobs(staff: Staff) -> None:
    client, row = staff(*RUNNER), schedule(expression="0 * * * *")
    moment = timezone.now().replace(minute=0, second=0, microsecond=0)
    CronRun.objects.create(
        name="report", scheduled_for=moment - timedelta(hours=1), fired_at=moment, outcome="enqueued", job_id=10**12
    )
    asked = a_range(moment - timedelta(hours=5), moment)
    text = act(client, "backfill", row, **asked).content.decode()
    assert "This range has 5 fire times." in text
    assert "4 of them have no job yet" in text
    assert not Job.objects.exists()
    assert 'name="_confirm" value="4"' in text
    answer = act(client, "backfill", row, **asked, _confirm="3")
    assert "confirm their number again" in said(answer)
    assert not Job.objects.exists(), "the range was changed after its fire times were counted"
    answer = act(client, "backfill", row, **asked, _confirm="4")
    assert "4 jobs are enqueued" in said(answer)
    assert Job.objects.count() == 4
    assert "4 jobs" in LogEntry.objects.get().change_message
    text = act(client, "backfill", row, **asked).content.decode()
    assert "0 of them have no job yet" in text
    assert 'name="_confirm"' not in text


def test_a_range_that_cannot_be(root: Client) -> None:
    row = schedule(expression="* * * * *")
    now = timezone.now()
    for start, end, field, says in (
        (now - timedelta(days=1), now + timedelta(days=1), "end", "future"),
        (now - timedelta(days=1), now - timedelta(days=2), "end", "not later"),
        (now - timedelta(days=300), now - timedelta(days=1), "end", "10,000"),
    ):
        answer = act(root, "backfill", row, **a_range(start, end), _confirm="1")
        assert says in answer.context["form"].errors[field][0]
    answer = act(root, "backfill", row, start_0="soon", start_1="", end_0="", end_1="", _confirm="1")
    assert set(answer.context["form"].errors) == {"start", "end"}
    CronSchedule.objects.update(expression="nonsense")
    answer = act(root, "backfill", row, **a_range(now - timedelta(days=1), now - timedelta(hours=1)), _confirm="1")
    assert "__all__" in answer.context["form"].errors
    assert not Job.objects.exists()


def test_a_backfill_of_a_job_that_is_not_known_here_is_no_error_page(root: Client) -> None:
    row = schedule()
    CronSchedule.objects.update(job_name="nobody.knows")
    now = timezone.now()
    answer = act(root, "backfill", row, **a_range(now - timedelta(hours=5), now - timedelta(hours=1)), _confirm="4")
    assert "nobody.knows" in answer.context["form"].errors["__all__"][0]


# --- the preview


def rows_of(text: str) -> list[tuple[str, ...]]:
    cells = re.findall(r"<td>([^<]*)</td>", text)
    return [tuple(cells[i : i + 2]) for i in range(0, len(cells), 2)]


def test_the_next_ten_times_in_the_zone_and_in_utc() -> None:
    found = preview("30 2 * * *", "Europe/Paris", utc("2026-03-27 12:00"))
    assert (len(found.rows), found.zone, found.problem) == (10, "Europe/Paris", "")
    assert found.rows[:2] == (
        ("Sat 2026-03-28 02:30:00 +0100", "Sat 2026-03-28 01:30:00 +0000"),
        ("Sun 2026-03-29 03:00:00 +0200", "Sun 2026-03-29 01:00:00 +0000"),
    )


def test_the_start_and_the_end_count() -> None:
    found = preview("0 0 * * *", "UTC", utc("2026-01-01 12:00"), utc("2026-02-01 00:00"), utc("2026-02-02 00:00"))
    assert [row[1][4:14] for row in found.rows] == ["2026-02-01", "2026-02-02"]
    assert "any more" in preview("0 0 * * *", "UTC", utc("2026-03-01 00:00"), None, utc("2026-02-02 00:00")).problem


@pytest.mark.parametrize(
    ("expression", "zone", "says"),
    [("", "UTC", "Write"), ("61 * * * *", "UTC", "minute"), ("* * * * *", "Mars", "Mars"), ("0 0 30 2 *", "UTC", "never"),
     ("* * * * *", "", "zone"), ("@every", "UTC", "@every")],
)  # fmt: skip
def test_what_cannot_be_is_said_in_the_preview(staff: Staff, expression: str, zone: str, says: str) -> None:
    found = preview(expression, zone, utc("2026-01-01 00:00"))
    assert says in found.problem
    assert found.rows == ()


def test_the_preview_follows_the_form_with_and_without_scripts(staff: Staff) -> None:
    client = staff("view_cronschedule", "add_cronschedule", "change_cronschedule")
    row = schedule(expression="0 * * * *")
    asked = {"expression": "0 9 * * *", "timezone": "Asia/Tokyo", "ends_at_0": "2020-01-01", "ends_at_1": "0:00"}
    live = client.get(url("preview", model="cronschedule"), asked).content.decode()
    assert "It does not fire any more." in live
    live = client.get(url("preview", model="cronschedule"), asked | {"ends_at_0": "", "ends_at_1": ""}).content.decode()
    before = CronSchedule.objects.values().get()
    for address in (url("add", model="cronschedule"), url("change", row.pk, model="cronschedule")):
        page = client.post(address, FORM | {"expression": "0 9 * * *", "timezone": "Asia/Tokyo", "_preview": "1"})
        assert rows_of(page.content.decode())[:10] == rows_of(live)
        assert len(rows_of(live)) == 10
        assert page.context["adminform"].form["expression"].value() == "0 9 * * *"
    assert CronSchedule.objects.values().get() == before
    assert not LogEntry.objects.exists()


def test_a_preview_of_a_wrong_form_shows_the_errors_too(root: Client) -> None:
    answer = root.post(url("add", model="cronschedule"), FORM | {"expression": "<b>", "_preview": "1"})
    assert answer.status_code == 200
    assert "expression" in answer.context["adminform"].form.errors
    assert "<b>" not in answer.content.decode().replace("<b><", "")
    assert "Not possible" in unescape(answer.content.decode())


def test_the_preview_is_for_those_who_may_see_schedules(staff: Staff) -> None:
    assert staff("view_job").get(url("preview", model="cronschedule")).status_code == 403
    assert staff("view_cronschedule").get(url("preview", model="cronschedule")).status_code == 200


def test_nothing_inline_that_a_strict_policy_forbids(root: Client) -> None:
    row = schedule()
    note.enqueue("x")
    for address in (
        url("changelist", model="cronschedule"),
        url("add", model="cronschedule"),
        url("change", row.pk, model="cronschedule"),
        url("backfill", row.pk, model="cronschedule"),
    ):
        text = root.get(address).content.decode()
        assert not re.search(r"<script(?![^>]*\b(src|type)=)[^>]*>|<style|\sstyle=|\son\w+=|javascript:", text), address
