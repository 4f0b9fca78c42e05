"""A handler is DONE when its work is done, also where a call only returns what is still to be run (case N01)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.db.models.functions import Now

from django_reliable_jobs import control
from django_reliable_jobs.control.schedules import delete_schedule, save_schedule
from django_reliable_jobs.errors import NotRun
from django_reliable_jobs.models import GuardClaim, JobStatus
from tests.support.fleet import Fleet, JobWorker
from tests.support.look import all_done, ended, errors, marked, marks, reached
from tests.support.probes import wrapped
from tests.support.probes.models import Mark


@pytest.fixture(scope="module")
def worker(crew: Fleet) -> JobWorker:
    return crew.start("--slots", "2")


@pytest.mark.parametrize("kind", wrapped.runs)
def test_an_awaitable_that_comes_back_is_awaited(worker: JobWorker, kind: str) -> None:
    job = ended(wrapped.runs[kind].enqueue(kind))
    assert (job.status, marks(job)) == (JobStatus.DONE, [kind]), errors(job)
    assert job.result == kind or kind in wrapped.GUARDED


@pytest.mark.parametrize("kind", wrapped.isolated)
def test_in_a_child_process_too(worker: JobWorker, kind: str) -> None:
    job = ended(wrapped.isolated[kind].enqueue(kind))
    assert (job.status, job.result, marks(job)) == (JobStatus.DONE, kind, [kind]), errors(job)


def test_by_a_schedule_too(worker: JobWorker) -> None:
    save_schedule("wrapped", "wrapped.runs.wrapped", "@every 1", args=["by a schedule"])
    try:
        assert ended(marked("by a schedule")[0].job_id).status == JobStatus.DONE
    finally:
        delete_schedule("wrapped")


def test_a_future_is_waited_for(worker: JobWorker) -> None:
    assert ended(wrapped.future.enqueue("in a thread")).result == "in a thread"


@pytest.mark.parametrize("kind", wrapped.unrun)
def test_what_nobody_would_run_fails_the_attempt_and_says_why(worker: JobWorker, kind: str) -> None:
    job = ended(wrapped.unrun[kind].enqueue(kind))
    (attempt,) = errors(job)
    assert (job.status, marks(job), attempt.error_kind) == (
        JobStatus.DEAD, [], "django_reliable_jobs.errors.NotRun",
    )  # fmt: skip
    assert "nobody would run" in attempt.error_message
    claims = GuardClaim.objects.filter(key__in=[f"run:unrun:{kind}", f"run:aunrun:{kind}"])
    assert not claims.exclude(expires_at__lte=Now()).exists(), "it is not done"


def test_in_a_child_process_it_fails_too(worker: JobWorker) -> None:
    job = ended(wrapped.isolated_unrun.enqueue("isolated"))
    assert (job.status, "nobody would run" in errors(job)[0].error_message) == (JobStatus.DEAD, True)


@pytest.mark.parametrize("kind", wrapped.atomic)
def test_an_atomic_job_that_returns_one_is_refused_and_rolled_back(worker: JobWorker, kind: str) -> None:
    job = ended(wrapped.atomic[kind].enqueue(kind))
    assert (job.status, marks(job)) == (JobStatus.DEAD, [])
    assert errors(job)[0].error_kind == "django_reliable_jobs.errors.NotRun"


def test_what_is_raised_in_it_is_the_attempts_error(worker: JobWorker) -> None:
    job = ended(wrapped.fails_later.enqueue("at last"))
    assert (marks(job), errors(job)[0].error_message) == (["at last"], "after its await")


def test_the_deadline_holds_while_it_is_awaited(worker: JobWorker) -> None:
    job = ended(wrapped.waits_for_ever.enqueue())
    assert (job.status, job.reason, marks(job)) == (JobStatus.DEAD, "deadline exceeded", ["waits"])


def test_it_can_be_cancelled_while_it_is_awaited(worker: JobWorker) -> None:
    job = wrapped.waits_to_be_cancelled.enqueue()
    reached(job, JobStatus.RUNNING)
    marked("waits")
    control.cancel(job)
    assert reached(job, JobStatus.CANCELLED).reason == "cancel requested"
    all_done([wrapped.runs["wrapped"].enqueue("the slot goes on")])


def in_a_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    async def main() -> Any:
        try:
            return await coroutine
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(main())


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [kind for kind in wrapped.runs if not wrapped.runs[kind].is_coroutine])
def test_call_awaits_too(kind: str) -> None:
    value = wrapped.runs[kind].call(kind)
    assert kind in (value, getattr(value, "value", None))
    assert [*Mark.objects.values_list("label", flat=True)] == [kind]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", wrapped.runs)
def test_acall_awaits_too(kind: str) -> None:
    value = in_a_loop(wrapped.runs[kind].acall(kind))
    assert kind in (value, getattr(value, "value", None))
    assert [*Mark.objects.values_list("label", flat=True)] == [kind]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("definition", [*wrapped.unrun.values(), *wrapped.atomic.values()], ids=lambda d: d.name)
def test_call_and_acall_refuse_what_nobody_would_run(definition: Any) -> None:
    with pytest.raises(NotRun):
        in_a_loop(definition.acall("acall"))
    if not definition.is_coroutine:
        with pytest.raises(NotRun):
            definition.call("call")
    assert not Mark.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_call_in_an_event_loop_says_what_to_use() -> None:
    async def act() -> None:
        wrapped.runs["wrapped"].call("here")

    with pytest.raises(NotRun, match="acall"):
        in_a_loop(act())
