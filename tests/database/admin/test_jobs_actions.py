"""What people do to jobs: one, some, or all that match; what is skipped, and what is said and logged of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection, connections
from django.http import HttpResponse
from django.test import Client

from django_reliable_jobs.admin import actions
from django_reliable_jobs.admin.jobs import act as jobs_act
from django_reliable_jobs.admin.jobs import all_matching as jobs_walk
from django_reliable_jobs.models import CronRun, Job, JobAttempt
from django_reliable_jobs.store import control as control_store
from testproject.postgres import url_of
from tests.support.admin.fixtures import url
from tests.support.factories import JobAttemptFactory, JobCheckpointFactory, JobFactory, ago

pytestmark = pytest.mark.django_db

TRAITS = ("queued", "failed", "running", "done", "dead", "cancelled")
CHANGES = {
    "retry": {"failed", "dead", "cancelled"},
    "cancel": {"queued", "failed", "running"},
    "run_now": {"queued", "failed"},
    "priority": {"queued", "failed"},
    "delete": {"queued", "failed", "done", "dead", "cancelled"},
}


def make(trait: str = "queued", **values: Any) -> Job:
    return JobFactory(**values, **({} if trait == "queued" else {trait: True}))


def rows() -> list[dict[str, Any]]:
    return list(Job.objects.order_by("id").values())


def do(client: Client, verb: str, *jobs: Job, **form: Any) -> str:
    """Post the page of confirmation; what is said afterwards."""
    ids = ",".join(str(job.pk) for job in jobs)
    answer = client.post(url("act"), {"verb": verb, "ids": ids, "priority": 7, **form}, follow=True)
    assert answer.status_code == 200
    return " ".join(str(message) for message in answer.context["messages"])


def do_all(client: Client, verb: str, filters: str, **form: Any) -> tuple[dict[str, Any], int]:
    """As the page's script does it: POST after POST. What the last one said, and how many there were."""
    fields = {"verb": verb, "filters": filters, **form}
    for count in range(1, 200):
        answer: Any = client.post(url("act"), fields, headers={"accept": "application/json"})
        state: dict[str, Any] = answer.json()
        if state["place"] is None:
            return state, count
        fields |= {"place": state["place"], "tally": state["tally"]}
    raise AssertionError("it does not come to an end")


@pytest.mark.parametrize("trait", TRAITS)
@pytest.mark.parametrize("verb", CHANGES)
def test_a_verb_changes_the_statuses_that_it_is_for(root: Client, verb: str, trait: str) -> None:
    job = make(trait, run_at=ago(-3600))
    before = rows()
    assert root.get(url("act", verb=verb, ids=job.pk)).status_code == 200
    assert rows() == before, "GET changes nothing"
    said = do(root, verb, job)
    if trait in CHANGES[verb]:
        assert rows() != before
        assert "left as it is" not in said
        entry = LogEntry.objects.get()
        assert (entry.object_id, entry.object_repr, entry.user.get_username()) == (str(job.pk), str(job), "root")
        assert entry.is_deletion() == (verb == "delete")
    else:
        assert rows() == before
        assert "1 is left as it is" in said
        assert not LogEntry.objects.exists()


def test_where_one_comes_back_to(root: Client) -> None:
    one, other = make("dead"), make("dead")
    answer = root.post(url("act"), {"verb": "retry", "ids": str(one.pk)})
    assert answer.headers["Location"] == url("change", one.pk)
    answer = root.post(url("act"), {"verb": "delete", "ids": f"{one.pk}", "list": "status=DEAD"})
    assert answer.headers["Location"] == url("changelist", status="DEAD")
    answer = root.post(url("act"), {"verb": "retry", "ids": f"{one.pk},{other.pk}", "list": "status=DEAD"})
    assert answer.headers["Location"] == url("changelist", status="DEAD")


def test_the_lists_menu_leads_to_the_question(root: Client) -> None:
    jobs = [make("dead"), make("dead")]
    chosen = {"action": "retry", "_selected_action": [str(job.pk) for job in jobs]}
    answer = root.post(url("changelist", status="DEAD"), chosen, follow=True)
    assert [row[0].pk for row in answer.context["rows"]] == [jobs[1].pk, jobs[0].pk]
    assert answer.context["came_from"] == "status=DEAD"
    answer = root.post(url("changelist", status="DEAD", p=1), chosen | {"select_across": "1"}, follow=True)
    assert (answer.context["filters"], answer.context["total"]) == ("status=DEAD", 2)
    assert not Job.objects.filter(status="QUEUED").exists()


def test_some_are_changed_and_the_others_counted_with_the_reason(root: Client) -> None:
    holder = make(unique_key="k")
    jobs = [make("dead"), make("cancelled"), make("done"), make("running"), make("dead", unique_key="k")]
    said = do(root, "retry", *jobs, ids=",".join(str(job.pk) for job in jobs) + ",999999999")
    assert said == (
        "2 jobs are queued again. 4 are left as they are: it is not DEAD, FAILED or CANCELLED (2);"
        f" job {holder.pk} holds its unique key (1); there is no such job (1)."
    )
    assert LogEntry.objects.count() == 2
    assert [Job.objects.get(pk=job.pk).status for job in jobs] == ["QUEUED", "QUEUED", "DONE", "RUNNING", "DEAD"]


def test_of_two_dead_jobs_with_one_key_one_is_retried(root: Client) -> None:
    jobs = [make("dead", unique_key="k"), make("dead", unique_key="k"), make("failed", unique_key="other")]
    assert do(root, "retry", *jobs) == (
        f"2 jobs are queued again. 1 is left as it is: job {jobs[0].pk} holds its unique key."
    )


def test_a_key_that_is_taken_at_that_moment(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one statement fails as a whole; the jobs are retried one by one."""
    jobs = [make("dead", unique_key="k"), make("dead")]
    monkeypatch.setattr(control_store, "retry_many", lambda alias, ids: [])
    holder = make(unique_key="k")
    assert do(root, "retry", *jobs) == (
        f"1 job is queued again. 1 is left as it is: job {holder.pk} holds its unique key."
    )


def test_a_deleted_job_takes_its_attempts_along_and_its_run_keeps_the_end(root: Client) -> None:
    dead, waiting = make("dead"), make()
    JobAttemptFactory(job=dead)
    JobCheckpointFactory(job=dead)
    for number, job in enumerate((dead, waiting)):
        CronRun.objects.create(
            name=f"s{number}", scheduled_for=ago(60), outcome="enqueued", job_id=job.pk, fired_at=ago(60)
        )
    do(root, "delete", dead, waiting)
    assert not Job.objects.exists()
    assert not JobAttempt.objects.exists()
    runs = CronRun.objects.order_by("name").values_list("job_status", flat=True)
    assert list(runs) == ["DEAD", "CANCELLED"]
    assert CronRun.objects.get(name="s0").job_finished_at == dead.finished_at


@pytest.mark.parametrize("priority", ["", "x", "101", "-101", "1.5"])
def test_a_priority_that_is_none_is_asked_for_again(root: Client, priority: str) -> None:
    job = make()
    answer = root.post(url("act"), {"verb": "priority", "ids": str(job.pk), "priority": priority})
    assert "whole number from -100 to 100" in answer.content.decode()
    assert Job.objects.get().priority == 0
    assert do(root, "priority", job, priority="-100") == "1 job has the new priority."
    assert Job.objects.get().priority == -100
    assert LogEntry.objects.get().change_message == "Priority changed. (-100)"


@pytest.mark.parametrize(
    "form",
    [
        {"verb": "retry", "ids": ""}, {"verb": "retry", "ids": "x"}, {"verb": "pause", "ids": "1"},
        {"verb": "retry", "filters": "status=DEAD", "place": "[1"}, {"verb": "retry", "filters": "status=DEAD", "tally": "{}"},
        {"verb": "retry", "filters": "status=DEAD", "place": '["x", 1]'},
    ],
)  # fmt: skip
def test_a_form_that_makes_no_sense_is_not_found(root: Client, form: dict[str, str]) -> None:
    make("dead")
    assert root.post(url("act"), form).status_code == 404
    assert Job.objects.get().status == "DEAD"


def test_without_a_filter_nothing_is_done_to_all(root: Client) -> None:
    make("dead")
    assert "Narrow the list" in root.get(url("act", filters="")).content.decode()
    assert "Narrow the list" in root.get(url("act", verb="retry", filters="p=2")).content.decode()
    assert root.post(url("act"), {"verb": "delete", "filters": ""}).status_code == 403
    assert Job.objects.count() == 1


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of three, one a request."""
    monkeypatch.setattr(jobs_walk, "BATCH", 3)
    monkeypatch.setattr(jobs_walk, "SCAN", 5)
    monkeypatch.setattr(jobs_act, "TURN", 0.0)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    "filters", ["status=DEAD", "name=probes.noop", "status=DEAD&time=day", "time=day", "q=arg:pick"]
)
def test_all_that_match_in_batches(root: Client, filters: str) -> None:
    wanted = [make("dead", args=["pick"], finished_at=ago(number // 3)) for number in range(17)]
    if "DEAD" not in filters:
        wanted += [make(trait, args=["pick"]) for trait in ("failed", "cancelled") for _ in range(4)]
    others = [make(trait, name="probes.echo", args=["pick it not"]) for trait in ("done", "running", "queued")]
    ask = root.get(url("act", verb="retry", filters=filters))
    assert ask.context["total"] == len(wanted) or ask.context["incomplete"], "a search is counted in one look"
    state, requests = do_all(root, "retry", filters)
    assert (state["done"], state["text"]) == (len(wanted), f"{len(wanted)} jobs are queued again.")
    assert requests >= len(wanted) / 3
    assert {job.pk for job in wanted} <= set(Job.objects.filter(status="QUEUED").values_list("pk", flat=True))
    assert LogEntry.objects.count() == len(wanted)
    for job in others:
        assert Job.objects.get(pk=job.pk).status == job.status


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    ("verb", "priority"), [("priority", "-5"), ("priority", "5"), ("run_now", "0"), ("cancel", "0")]
)
def test_jobs_that_move_while_they_are_walked_are_met_once(root: Client, verb: str, priority: str) -> None:
    """A new priority, and a new `run_at`, is another place in the order of the walk."""
    jobs = [make(priority=number % 3, run_at=ago(-60 + number % 2)) for number in range(14)]
    state, _requests = do_all(root, verb, "status=QUEUED", priority=priority)
    assert (state["done"], LogEntry.objects.count()) == (len(jobs), len(jobs))
    if verb == "priority":
        assert set(Job.objects.values_list("priority", flat=True)) == {int(priority)}


@pytest.mark.usefixtures("_small")
def test_clashes_are_counted_over_all_batches(root: Client) -> None:
    for number in range(8):
        make(unique_key=f"k{number}")
        make("dead", unique_key=f"k{number}")
    make("dead")
    state, _requests = do_all(root, "retry", "status=DEAD")
    assert state["text"].startswith("1 job is queued again. 8 are left as they are: job ")
    assert state["text"].endswith("like reasons (3).")


@pytest.mark.usefixtures("_small")
def test_without_a_script_a_button_goes_on(root: Client) -> None:
    for _ in range(7):
        make("dead")
    form: dict[str, Any] = {"verb": "retry", "filters": "status=DEAD", "total": 7}
    pages: list[HttpResponse] = []
    while True:
        page: Any = root.post(url("act"), form)
        pages.append(page)
        if page.context["finished"]:
            break
        assert "data-goes-on" in page.content.decode()
        form |= {"place": page.context["place"], "tally": page.context["state"]}
    assert len(pages) == 3
    assert "7 jobs are queued again." in pages[-1].content.decode()
    assert not Job.objects.filter(status="DEAD").exists()


@pytest.mark.usefixtures("_small")
def test_jobs_that_die_meanwhile_are_not_met_again(root: Client) -> None:
    """Or a walk over jobs that die at once would never end."""
    for _ in range(6):
        make("dead")
    first = root.post(url("act"), {"verb": "retry", "filters": "status=DEAD"}, headers={"accept": "application/json"})
    Job.objects.filter(status="QUEUED").update(status="DEAD", finished_at=ago(0))
    state, _requests = do_all(root, "retry", "status=DEAD", place=first.json()["place"], tally=first.json()["tally"])
    assert state["done"] == 6


def test_a_status_that_the_verb_is_not_for_matches_nothing(root: Client) -> None:
    make("done")
    state, requests = do_all(root, "retry", "status=DONE")
    assert (state["done"], requests) == (0, 1)


@pytest.fixture
def other_session(transactional_db: None) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url_of(connection.settings_dict)) as other:
        yield other
        other.rollback()


@pytest.mark.django_db(transaction=True)
def test_a_row_that_somebody_has_locked_is_skipped_soon(
    root: Client, other_session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "PATIENCE", 0.05)
    jobs = [make("dead") for _ in range(4)]
    other_session.execute("SELECT FROM django_reliable_jobs_job WHERE id = %s FOR UPDATE", [jobs[1].pk])
    assert do(root, "retry", *jobs) == (
        "3 jobs are queued again. 1 is left as it is: another transaction has it locked."
    )
    assert Job.objects.get(pk=jobs[1].pk).status == "DEAD"
    with connections["default"].cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",), "the patience ends with its transaction"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_small")
def test_each_batch_commits_by_itself_under_atomic_requests(
    root: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    seen: list[bool] = []
    retry = control_store.retry_many

    def watched(alias: str, ids: Any) -> Any:
        seen.append(len(connections[alias].savepoint_ids) == 1)
        return retry(alias, ids)

    monkeypatch.setattr(control_store, "retry_many", watched)
    make("dead")
    do_all(root, "retry", "status=DEAD")
    assert seen == [False], "one transaction of its own, no savepoint in the request's"
