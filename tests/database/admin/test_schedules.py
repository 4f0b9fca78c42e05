"""People's own schedules in the admin: made, changed, deleted, each error at its field; those in code only looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.test import Client

from django_reliable_jobs import job
from django_reliable_jobs.control.schedules import save_schedule
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.models import CronRun, CronSchedule
from tests.support.admin.fixtures import Staff, url
from tests.support.schedules.tools import schedule

pytestmark = pytest.mark.django_db

EDITOR = ("view_cronschedule", "add_cronschedule", "change_cronschedule", "delete_cronschedule")
FORM = {
    "name": "report", "job_name": "probes.noop", "args": "", "kwargs": '{"number": 4}', "expression": "0 9 * * mon-fri",
    "timezone": "Asia/Ho_Chi_Minh", "starts_at_0": "", "starts_at_1": "", "ends_at_0": "", "ends_at_1": "",
    "misfire": "latest", "misfire_grace": "60", "catch_up_window": "86400", "catch_up_limit": "100",
    "overlap": "skip", "jitter": "0", "pause_after_failures": "", "seen_version": "1",
}  # fmt: skip
ADD = ("add", "cronschedule")


@pytest.fixture
def secret() -> Iterator[None]:
    """Two jobs, one of which hides an argument."""

    @job(name="tests.charge", redact=["card"])
    def charge(amount: int, card: str = "", *, note: str = "") -> None: ...

    @job(name="tests.open")
    def open_(amount: int, card: str = "") -> None: ...

    yield
    for name in ("tests.charge", "tests.open"):
        registry._by_name.pop(name)


def add(client: Client, **changes: str) -> Any:
    return client.post(url("add", model="cronschedule"), FORM | changes)


def change(client: Client, row: CronSchedule, **changes: str) -> Any:
    return client.post(url("change", row.pk, model="cronschedule"), FORM | changes)


def errors(answer: Any) -> dict[str, str]:
    """Field -> what is said at it; "" for what is said about the whole form."""
    assert answer.status_code == 200
    form = answer.context["adminform"].form
    return {("" if field == "__all__" else field): " ".join(texts) for field, texts in form.errors.items()}


def text_of(answer: Any) -> str:
    return unescape(answer.content.decode())


def test_one_is_made(staff: Staff) -> None:
    answer = add(staff(*EDITOR), args="[7]", kwargs="", starts_at_0="2026-01-02", starts_at_1="03:04:05", jitter="30")
    assert answer.status_code == 302, errors(answer)
    made = CronSchedule.objects.get()
    assert (made.name, made.job_name, made.args, made.kwargs, made.source) == ("report", "probes.noop", [7], {}, "")
    assert (made.expression, made.timezone, made.overlap, made.jitter) == (
        "0 9 * * mon-fri",
        "Asia/Ho_Chi_Minh",
        "skip",
        30,
    )
    assert made.starts_at is not None
    assert made.next_fire_at is not None
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_id) == (ADDITION, str(made.pk))


def test_one_is_changed(staff: Staff) -> None:
    row = schedule()
    answer = change(staff(*EDITOR), row, expression="@every 5m", kwargs='{"number": 9}', pause_after_failures="3")
    assert answer.status_code == 302, errors(answer)
    changed = CronSchedule.objects.get()
    assert (changed.name, changed.expression, changed.kwargs) == ("report", "@every 300", {"number": 9})
    assert (changed.version, changed.pause_after_failures) == (2, 3)
    assert LogEntry.objects.get().action_flag == CHANGE


def test_arguments_come_back_as_they_went_in(staff: Staff) -> None:
    """Tagged values too: what the form shows is what is stored."""
    client = staff(*EDITOR)
    texts = {"args": '[{"$date": "2026-03-01"}]', "kwargs": ""}
    assert add(client, job_name="probes.echo", **texts).status_code == 302
    row = CronSchedule.objects.get()
    assert row.args == [{"$date": "2026-03-01"}]
    form = client.get(url("change", row.pk, model="cronschedule")).context["adminform"].form
    assert form["args"].value() == texts["args"]
    assert change(client, row, job_name="probes.echo", args=form["args"].value(), kwargs="").status_code == 302
    assert CronSchedule.objects.get().args == row.args


WRONG = {
    "no job": ({"job_name": ""}, "job_name", "required"),
    "an import path": ({"job_name": "os.system"}, "job_name", "os.system"),
    "expression": ({"expression": "61 * * * *"}, "expression", "minute"),
    "never": ({"expression": "0 0 30 2 *"}, "expression", "never"),
    "period": ({"expression": "@every soon"}, "expression", "@every 90"),
    "a long one": ({"expression": "0 " * 300}, "expression", "500"),
    "zone": ({"timezone": "Asia/Saigonn"}, "timezone", "Asia/Saigon"),
    "a long zone": ({"timezone": "x" * 70}, "timezone", "64"),
    "no JSON": ({"args": "[1,"}, "args", "JSON"),
    "no array": ({"args": '{"a": 1}'}, "args", "array"),
    "no object": ({"kwargs": "[1]"}, "kwargs", "object"),
    "too many": ({"args": "[1, 2]", "kwargs": ""}, "args", "too many"),
    "unexpected": ({"kwargs": '{"nummer": 1}'}, "kwargs", "nummer"),
    "NaN": ({"args": "[NaN]", "kwargs": ""}, "args", "number"),
    "an unknown tag": ({"args": '[{"$dote": 1}]', "kwargs": ""}, "args", "dote"),
    "deep": ({"args": "[" * 5000, "kwargs": ""}, "args", "JSON"),
    "misfire": ({"misfire": "perhaps"}, "misfire", "perhaps"),
    "overlap": ({"overlap": "perhaps"}, "overlap", "perhaps"),
    "grace": ({"misfire_grace": "-1"}, "misfire_grace", "misfire_grace"),
    "infinite": ({"jitter": "1e400"}, "jitter", ""),
    "limit": ({"catch_up_limit": "0"}, "catch_up_limit", "10000"),
    "no number": ({"jitter": "much"}, "jitter", "number"),
    "failures": ({"pause_after_failures": "0"}, "pause_after_failures", "1000"),
    "huge": ({"pause_after_failures": "9" * 30}, "pause_after_failures", ""),
    "end before start": (
        {"starts_at_0": "2026-01-02", "starts_at_1": "00:00", "ends_at_0": "2026-01-01", "ends_at_1": "00:00"},
        "ends_at", "earlier",
    ),
    "no name": ({"name": ""}, "name", "required"),
    "a long name": ({"name": "x" * 201}, "name", "200"),
    "NUL": ({"name": "a\x00b"}, "name", "ull"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "field", "says"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_said_at_its_field(root: Client, changes: dict[str, str], field: str, says: str) -> None:
    found = errors(add(root, **changes))
    assert list(found) == [field], found
    assert says in found[field]
    assert not CronSchedule.objects.exists()


def test_a_name_that_is_taken_is_refused_and_overwrites_nothing(root: Client) -> None:
    schedule(kwargs={"number": 1})
    assert list(errors(add(root))) == ["name"]
    assert CronSchedule.objects.get().kwargs == {"number": 1}


def test_what_somebody_else_changed_meanwhile_is_not_overwritten(root: Client) -> None:
    row = schedule()
    save_schedule("report", "probes.noop", "5 5 * * *")
    assert "meanwhile" in errors(change(root, row))[""]
    assert CronSchedule.objects.get().expression == "5 5 * * *"


def test_one_that_a_deploy_took_over_meanwhile_is_no_error_page(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the row and the write."""
    row = schedule()
    real = save_schedule

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        CronSchedule.objects.update(source="probes")
        return real(*args, **kwargs)

    monkeypatch.setattr("django_reliable_jobs.control.schedules.save_schedule", overtaken)
    answer = root.post(url("change", row.pk, model="cronschedule"), FORM, follow=True)
    assert "defined by the code" in text_of(answer)


def test_one_is_deleted_alone_and_with_others(staff: Staff) -> None:
    client = staff(*EDITOR)
    one, two, code = (schedule(name=name) for name in ("one", "two", "code"))
    CronRun.objects.create(name="one", scheduled_for=one.fired_through, fired_at=one.fired_through, outcome="error")
    CronSchedule.objects.filter(name="code").update(source="probes")
    assert client.post(url("delete", one.pk, model="cronschedule"), {"post": "yes"}).status_code == 302
    assert CronRun.objects.exists(), "the runs stay"
    action = {"action": "delete_selected", "post": "yes", "_selected_action": [two.pk, code.pk]}
    client.post(url("changelist", model="cronschedule"), action)
    assert CronSchedule.objects.count() == 2, "not together with one that may not be deleted"
    client.post(url("changelist", model="cronschedule"), action | {"_selected_action": [two.pk]})
    assert list(CronSchedule.objects.values_list("name", flat=True)) == ["code"]
    assert client.post(url("delete", code.pk, model="cronschedule"), {"post": "yes"}).status_code == 403
    assert LogEntry.objects.filter(action_flag=DELETION).count() == 2


def test_what_an_app_left_behind_can_be_deleted(root: Client) -> None:
    row = schedule()
    CronSchedule.objects.update(source="uninstalled")
    root.post(url("delete", row.pk, model="cronschedule"), {"post": "yes"})
    assert not CronSchedule.objects.exists()


def test_those_in_code_have_no_form(root: Client) -> None:
    row = schedule(kwargs={"number": 5})
    CronSchedule.objects.update(source="probes")
    answer = root.get(url("change", row.pk, model="cronschedule"))
    text = text_of(answer)
    assert "defined in the code of the app probes" in text
    assert '"number": 5' in text
    assert not re.search(r'<(textarea|input)[^>]*name="(kwargs|expression)"', text)
    assert 'name="_save"' not in text
    assert "Run now" in text
    assert change(root, row).status_code == 403


@pytest.mark.parametrize("missing", ["add_cronschedule", "change_cronschedule", "delete_cronschedule"])
def test_each_permission_is_asked_for(staff: Staff, missing: str) -> None:
    row = schedule(name="mine")
    client = staff(*(each for each in EDITOR if each != missing))
    refused = {
        "add_cronschedule": add(client).status_code,
        "change_cronschedule": change(client, row).status_code,
        "delete_cronschedule": client.post(url("delete", row.pk, model="cronschedule"), {"post": "yes"}).status_code,
    }
    assert {name for name, status in refused.items() if status == 403} == {missing}


def test_a_viewer_looks_and_no_more(staff: Staff) -> None:
    row = schedule(kwargs={"number": 5})
    client = staff("view_cronschedule")
    for address in (url("changelist", model="cronschedule"), url("change", row.pk, model="cronschedule")):
        text = text_of(client.get(address))
        assert "report" in text
        assert not re.search(r'name="(_save|action|_preview)"|Run now|/delete/', text)
    assert client.get(url("add", model="cronschedule")).status_code == 403
    assert add(client).status_code == change(client, row).status_code == 403
    assert staff("view_job").get(url("changelist", model="cronschedule")).status_code == 403


# --- redacted arguments


@pytest.mark.usefixtures("secret")
def test_hidden_values_are_shown_to_nobody(root: Client, staff: Staff) -> None:
    row = schedule(job="tests.charge", args=[5, "4111-secret"], kwargs={"note": "hello"})
    for client in (root, staff("view_cronschedule")):
        for page in ("changelist", "change", "history"):
            text = text_of(client.get(url(page, *([row.pk] if page != "changelist" else []), model="cronschedule")))
            assert "4111" not in text
        assert "********" in text_of(client.get(url("change", row.pk, model="cronschedule")))
    assert "4111" not in text_of(change(root, row, job_name="tests.charge", args="[1,", kwargs=""))


@pytest.mark.usefixtures("secret")
def test_hidden_values_outlive_an_edit_and_can_be_written_anew(root: Client) -> None:
    row = schedule(job="tests.charge", args=[5, "4111-secret"])
    form = root.get(url("change", row.pk, model="cronschedule")).context["adminform"].form
    assert form["args"].value() == '[5, "********"]'
    assert change(root, row, job_name="tests.charge", args='[6, "********"]', kwargs="").status_code == 302
    assert CronSchedule.objects.get().args == [6, "4111-secret"]
    anew = {"args": '[6, "4222"]', "kwargs": "", "seen_version": "2"}
    assert change(root, row, job_name="tests.charge", **anew).status_code == 302
    assert CronSchedule.objects.get().args == [6, "4222"]


@pytest.mark.usefixtures("secret")
@pytest.mark.parametrize(
    "changes",
    [
        {"job_name": "tests.open", "args": '[5, "********"]', "kwargs": ""},
        {"job_name": "tests.charge", "args": "[5]", "kwargs": '{"card": "********"}'},
        {"job_name": "tests.charge", "args": '["********"]', "kwargs": '{"note": "********"}'},
    ],
    ids=["another job", "another place", "one that is not there"],
)
def test_asterisks_carry_no_value_elsewhere(root: Client, changes: dict[str, str]) -> None:
    row = schedule(job="tests.charge", args=[5, "4111-secret"])
    assert set(errors(change(root, row, **changes))) <= {"args", "kwargs"}
    assert CronSchedule.objects.get().args == [5, "4111-secret"]


@pytest.mark.usefixtures("secret")
def test_of_a_job_that_is_not_known_here_everything_is_hidden(root: Client) -> None:
    row = schedule(job="tests.open", args=[5, "4111-secret"])
    CronSchedule.objects.update(job_name="elsewhere.job")
    text = text_of(root.get(url("change", row.pk, model="cronschedule")))
    assert "4111" not in text
    assert "args" in errors(change(root, row, job_name="tests.open", args='["********", "x"]', kwargs=""))


# --- the list


def test_the_list_says_how_each_is_doing(root: Client) -> None:
    for name in ("active", "paused", "broken"):
        schedule(name=f"is-{name}")
    CronSchedule.objects.filter(name="is-paused").update(paused=True, source="probes")
    CronSchedule.objects.filter(name="is-broken").update(broken="<b>no such zone</b>")
    CronRun.objects.create(
        name="is-active", scheduled_for="2026-01-01T00:00Z", fired_at="2026-01-01T00:00Z", outcome="enqueued",
        job_id=10**12, job_status="DEAD",
    )  # fmt: skip
    address = url("changelist", model="cronschedule")
    text = root.get(address).content.decode()
    assert "code of probes" in text
    assert re.search(r"2026-01-01 0[07]:00 <span[^>]*>dead<", text)
    for state in ("active", "paused", "broken"):
        found = root.get(address, {"state": state}).context["cl"].result_list
        assert [each.name for each in found] == [f"is-{state}"]
    assert [each.name for each in root.get(address, {"owner": "code"}).context["cl"].result_list] == ["is-paused"]
    broken = CronSchedule.objects.get(name="is-broken")
    text = root.get(url("change", broken.pk, model="cronschedule")).content.decode()
    assert "&lt;b&gt;no such zone&lt;/b&gt;" in text


@pytest.mark.parametrize("values", [{"args": 5, "kwargs": "x"}, {"expression": "nonsense"}, {"timezone": "Mars/Phobos"},
                                    {"job_name": "nobody.knows"}], ids=str)  # fmt: skip
def test_rows_that_were_written_by_hand_can_be_looked_at_and_mended(root: Client, values: dict[str, Any]) -> None:
    row = schedule()
    CronSchedule.objects.update(**values, broken="written by hand")
    assert root.get(url("changelist", model="cronschedule")).status_code == 200
    assert root.get(url("change", row.pk, model="cronschedule")).status_code == 200
    assert root.get(url("backfill", row.pk, model="cronschedule")).status_code == 200
    assert change(root, row).status_code == 302
    assert CronSchedule.objects.get().broken == ""
