"""Control: what each verb changes, by the status at the moment of writing, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from django_reliable_jobs import control
from django_reliable_jobs.models import Job, JobAttempt, JobCheckpoint, QueueState
from django_reliable_jobs.store import control as control_store
from django_reliable_jobs.store.exchange import ClaimRequest, Source, exchange
from django_reliable_jobs.store.heartbeat import Held, heartbeat
from django_reliable_jobs.store.reap import reap
from django_reliable_jobs.values.backoff import Backoff
from tests.support.factories import JobAttemptFactory, JobCheckpointFactory, JobFactory, ago, lease_of
from tests.support.probes.jobs import noop

pytestmark = pytest.mark.django_db

TRAITS = ("queued", "failed", "running", "done", "dead", "cancelled")


def make(trait: str, **values: Any) -> Job:
    return JobFactory(**values, **({} if trait == "queued" else {trait: True}))


def rows(**filters: Any) -> list[dict[str, Any]]:
    return list(Job.objects.filter(**filters).order_by("id").values())


@pytest.mark.parametrize("trait", TRAITS)
def test_cancel(trait: str) -> None:
    job = make(trait)
    before = rows()
    report = control.cancel(job)
    now = Job.objects.get()
    if trait in ("done", "dead", "cancelled"):
        assert (report.changed, report.skipped, bool(report)) == ([], {job.pk: "it has finished"}, False)
        assert rows() == before
        return
    assert (report.changed, report.skipped, bool(report)) == ([job.pk], {}, True)
    assert now.cancel_requested_at is not None
    if trait == "running":
        assert (now.status, now.reason, now.finished_at) == ("RUNNING", "", None)
        assert (now.locked_by, now.locked_until, now.fencing_token) == (
            job.locked_by,
            job.locked_until,
            job.fencing_token,
        )
        assert heartbeat("default", 30, [Held(lease_of(job).key)]) == {lease_of(job).key: True}
    else:
        assert (now.status, now.reason) == ("CANCELLED", "cancel requested")
        assert now.finished_at is not None


def test_cancelling_twice_keeps_the_first_time() -> None:
    job = JobFactory(running=True, cancel_requested_at=ago(60))
    assert control.cancel(job)
    assert Job.objects.get().cancel_requested_at == job.cancel_requested_at


@pytest.mark.parametrize("trait", TRAITS)
def test_retry(trait: str) -> None:
    values: dict[str, Any] = {
        "attempts": 5, "losses": 2, "result": {"a": 1}, "progress": {"done": 1}, "expires_at": ago(5), "reason": "r",
        "unknown_since": ago(9), "cancel_requested_at": ago(9), "run_at": ago(-600), "unique_key": "k", "priority": 3,
    }  # fmt: skip
    job = make(trait, **values)
    before = rows()
    began = timezone.now()
    report = control.retry(job)
    now = Job.objects.get()
    if trait in ("queued", "running", "done"):
        assert (report.changed, report.skipped) == ([], {job.pk: "it is not DEAD, FAILED or CANCELLED"})
        assert rows() == before
        return
    assert (report.changed, report.skipped) == ([job.pk], {})
    assert (now.status, now.reason, now.attempts, now.losses, now.priority) == ("QUEUED", "", 0, 0, 3)
    for name in (
        "result",
        "progress",
        "expires_at",
        "unknown_since",
        "cancel_requested_at",
        "locked_by",
        "finished_at",
    ):
        assert getattr(now, name) is None
    assert now.fencing_token == job.fencing_token, "the token is never reset"
    assert began <= now.run_at <= timezone.now()
    assert (now.unique_key, now.args) == (job.unique_key, job.args)


def test_a_retried_job_runs_once_with_a_greater_token_and_keeps_its_history() -> None:
    job = JobFactory(dead=True)
    attempt = JobAttemptFactory(job=job, fencing_token=job.fencing_token)
    checkpoint = JobCheckpointFactory(job=job, fencing_token=job.fencing_token, value=60)
    assert control.retry(job.pk)
    assert not control.retry(job.pk), "a second click"
    wish = ClaimRequest(8, pairs=[Source("default", 0)])
    [lease] = exchange("default", uuid4(), 30, [], wish).leases
    assert (lease.token > job.fencing_token, lease.attempt) == (True, 1)
    assert not control.retry(job.pk), "it is running by now"
    assert exchange("default", uuid4(), 30, [], wish).leases == []
    assert JobAttempt.objects.get() == attempt
    assert JobCheckpoint.objects.get(pk=checkpoint.pk).value == 60


def test_a_retry_that_its_unique_key_forbids_names_the_holder() -> None:
    dead, holder, other = JobFactory(dead=True, unique_key="k"), JobFactory(unique_key="k"), JobFactory(dead=True)
    with transaction.atomic():
        report = control.retry(Job.objects.filter(status="DEAD"))
        noop.enqueue()  # the transaction is usable
    assert (report.changed, report.skipped) == ([other.pk], {dead.pk: f"job {holder.pk} holds its unique key"})
    assert Job.objects.get(pk=dead.pk).status == "DEAD"


def test_of_two_dead_jobs_with_one_key_one_is_retried() -> None:
    one, other = JobFactory(dead=True, unique_key="k"), JobFactory(cancelled=True, unique_key="k")
    report = control.retry(Job.objects.all())
    assert (report.changed, report.skipped) == ([one.pk], {other.pk: f"job {one.pk} holds its unique key"})


@pytest.mark.parametrize("trait", TRAITS)
def test_run_now(trait: str) -> None:
    job = make(trait, run_at=ago(-600), attempts=3)
    before = rows()
    report = control.run_now(job)
    if trait not in ("queued", "failed"):
        assert report.skipped == {job.pk: "it is not QUEUED or FAILED"}
        assert rows() == before
        return
    assert report.changed == [job.pk]
    now = Job.objects.get()
    assert (now.status, now.attempts) == (job.status, 3)
    assert now.run_at <= timezone.now()


def test_run_now_leaves_a_due_job_its_place() -> None:
    job = JobFactory(run_at=ago(600))
    control.run_now(job)
    assert Job.objects.get().run_at == job.run_at


@pytest.mark.parametrize("trait", TRAITS)
def test_set_priority(trait: str) -> None:
    job = make(trait)
    before = rows()
    report = control.set_priority(job, -100)
    if trait not in ("queued", "failed"):
        assert report.skipped == {job.pk: "it is not QUEUED or FAILED"}
        assert rows() == before
        return
    assert report.changed == [job.pk]
    assert rows() == [before[0] | {"priority": -100}]


@pytest.mark.parametrize("priority", [101, -101, True, 1.0, "1"])
def test_a_priority_out_of_range_is_refused(priority: Any) -> None:
    job = JobFactory()
    with pytest.raises(ValueError, match="priority"):
        control.set_priority(job, priority)


VERBS = {
    "cancel": control.cancel,
    "retry": control.retry,
    "run_now": control.run_now,
    "set_priority": lambda jobs: control.set_priority(jobs, 9),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_job_an_id_and_a_queryset_are_taken(verb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_reliable_jobs.control.jobs.BATCH", 3)
    jobs = [make("failed") for _ in range(10)]
    assert verb(jobs[0]).changed == [jobs[0].pk]
    assert verb(jobs[1].pk).changed == [jobs[1].pk]
    rest = [job.pk for job in jobs[2:]]
    assert verb(Job.objects.filter(pk__in=rest).order_by("-run_at")).changed == rest
    assert verb(999_999_999).changed == []
    assert list(verb(999_999_999).skipped) == [999_999_999]
    assert verb(Job.objects.none()).changed == []


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_slice_is_what_it_was_when_the_verb_began(verb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its first batch is changed, the same slice of the table is made of other jobs."""
    monkeypatch.setattr("django_reliable_jobs.control.jobs.BATCH", 2)
    jobs = [make("failed") for _ in range(12)]
    waiting: QuerySet[Job] = Job.objects.filter(status="FAILED", priority=0, run_at__lt=ago(30)).order_by("id")
    assert verb(waiting[:5]).changed == [job.pk for job in jobs[:5]]
    changed = Job.objects.exclude(status="FAILED", priority=0, run_at__lt=ago(30)).count()
    assert changed == (5 if verb is not control.run_now else 0)


def test_a_queryset_is_written_by_the_status_of_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the write one of them finished."""
    jobs = [JobFactory(), JobFactory()]
    cancel = control_store.cancel

    def late(alias: str, ids: list[int]) -> Any:
        Job.objects.filter(pk=ids[0]).update(status="DONE", finished_at=timezone.now())
        return cancel(alias, ids)

    monkeypatch.setattr(control_store, "cancel", late)
    report = control.cancel(Job.objects.filter(status="QUEUED"))
    assert (report.changed, report.skipped) == ([jobs[1].pk], {jobs[0].pk: "it has finished"})
    assert Job.objects.get(pk=jobs[0].pk).status == "DONE"


def test_a_cancel_request_survives_the_loss_of_the_worker() -> None:
    job = JobFactory(running=True, locked_until=ago(1))
    control.cancel(job)
    [reaped] = reap("default", Backoff(), 10)
    assert (reaped.id, reaped.status) == (job.pk, "CANCELLED")
    now = Job.objects.get()
    assert (now.status, now.reason, now.finished_at is None) == ("CANCELLED", "cancel requested", False)


def test_pause_and_resume_say_whether_they_changed_anything() -> None:
    assert control.resume_queue("mail") is False, "it has never been paused"
    assert not QueueState.objects.exists()
    assert control.pause_queue("mail") is True
    assert control.pause_queue("mail") is False
    assert QueueState.objects.get().paused is True
    assert control.resume_queue("mail") is True
    assert control.resume_queue("mail") is False
    assert QueueState.objects.get().paused is False
    with pytest.raises(ValueError, match="queue"):
        control.pause_queue("a b")


def test_a_verb_joins_the_callers_transaction() -> None:
    jobs = [JobFactory(), JobFactory(dead=True)]
    before = rows()
    with transaction.atomic():
        control.cancel(jobs[0])
        control.retry(jobs[1])
        control.pause_queue("default")
        transaction.set_rollback(True)
    assert rows() == before
    assert not QueueState.objects.exists()


@pytest.mark.parametrize("trait", TRAITS)
def test_delete(trait: str) -> None:
    job = make(trait)
    JobAttemptFactory(job=job)
    JobCheckpointFactory(job=job)
    before = rows()
    report = control.delete(job)
    if trait == "running":
        assert (report.changed, report.skipped) == ([], {job.pk: "it is running, or kept by a foreign key"})
        assert rows() == before
        assert JobAttempt.objects.count() == JobCheckpoint.objects.count() == 1
        return
    assert (report.changed, report.skipped) == ([job.pk], {})
    assert not Job.objects.exists()
    assert not JobAttempt.objects.exists()
    assert not JobCheckpoint.objects.exists()


def test_a_list_of_ids_is_answered_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queryset is narrowed to what can be changed; ids were chosen one by one, so each gets its answer."""
    monkeypatch.setattr("django_reliable_jobs.control.jobs.BATCH", 2)
    jobs = [make("dead"), make("done"), make("failed"), make("running"), make("cancelled")]
    report = control.retry([*(job.pk for job in jobs), jobs[0].pk, 10**9])
    assert report.changed == [jobs[0].pk, jobs[2].pk, jobs[4].pk]
    why = "it is not DEAD, FAILED or CANCELLED"
    assert report.skipped == {jobs[1].pk: why, jobs[3].pk: why, 10**9: "there is no such job"}


def test_many_clashes_cost_a_statement_or_two_a_batch(django_assert_max_num_queries: Any) -> None:
    holders = [make("queued", unique_key=f"k{number}") for number in range(20)]
    jobs = [make("dead", unique_key=f"k{number}") for number in range(20)] + [make("dead") for _ in range(5)]
    with django_assert_max_num_queries(5):
        report = control.retry([job.pk for job in jobs])
    assert report.changed == [job.pk for job in jobs[20:]]
    assert report.skipped == {
        job.pk: f"job {holder.pk} holds its unique key" for job, holder in zip(jobs[:20], holders, strict=True)
    }


@pytest.mark.parametrize("verb", [control.cancel, control.retry, control.run_now, control.delete])
def test_an_id_that_no_job_has_is_said_to_be_unknown(verb: Callable[..., control.Report]) -> None:
    """U13: before, "it has finished"."""
    running = JobFactory(running=True)
    done = JobFactory(done=True)
    report = verb([running.pk, done.pk, 10**12])
    assert report.skipped[10**12] == "there is no such job"
    assert "there is no such job" not in [report.skipped.get(job.pk) for job in (running, done)]
