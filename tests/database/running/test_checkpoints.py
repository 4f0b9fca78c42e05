"""Checkpoints: of two owners only the latest can save, and what is read is what was saved."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from pytest_django import DjangoAssertNumQueries

from django_reliable_jobs import PayloadError, StaleToken
from django_reliable_jobs.models import Job, JobCheckpoint
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.running.context import JobContext
from django_reliable_jobs.store.heartbeat import Held, heartbeat
from tests.support.factories import JobFactory, lease_of, next_token
from tests.support.probes.models import Mark
from tests.support.sessions import Session, fetch, impatient

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def job() -> Job:
    return JobFactory(running=True)


@pytest.fixture
def ctx(job: Job) -> JobContext:
    impatient()  # a context that waits for itself is an error, not a test that hangs
    return context_of(job)


def context_of(job: Job, **changes: Any) -> JobContext:
    return JobContext(Attempt(lease_of(job, **changes)), "default")


def claimed_again(job: Job) -> JobContext:
    token = next_token()
    Job.objects.filter(pk=job.pk).update(fencing_token=token)
    return context_of(job, token=token)


def test_the_first_look_finds_nothing_and_stamps_the_row(job: Job, ctx: JobContext) -> None:
    assert ctx.state is None
    saved = JobCheckpoint.objects.get()
    assert (saved.job_id, saved.fencing_token, saved.version, saved.value) == (job.pk, job.fencing_token, 0, None)


def test_the_next_attempt_finds_what_was_saved_last(job: Job, ctx: JobContext) -> None:
    ctx.checkpoint({"row": 1})
    ctx.checkpoint({"row": 2})
    assert ctx.state == {"row": 2}
    later = context_of(job, token=next_token())
    assert later.state == {"row": 2}
    assert JobCheckpoint.objects.get().version == 2


def test_state_is_read_once(ctx: JobContext, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(1):
        assert ctx.state is None
        assert ctx.state is None
    with django_assert_num_queries(1):
        ctx.checkpoint(1)
        assert ctx.state == 1


def test_an_older_attempt_cannot_save_once_a_newer_one_has_looked(job: Job, ctx: JobContext) -> None:
    ctx.checkpoint(1)
    newer = claimed_again(job)
    assert newer.state == 1
    with pytest.raises(StaleToken, match=f"job {job.pk}"):
        ctx.checkpoint(2)
    with pytest.raises(StaleToken):
        _ = context_of(job).state
    assert JobCheckpoint.objects.get().value == 1
    newer.checkpoint(3)
    assert JobCheckpoint.objects.get().value == 3


def test_the_work_of_a_refused_step_is_rolled_back(job: Job, ctx: JobContext) -> None:
    _ = context_of(job, token=next_token()).state

    def step() -> None:
        with transaction.atomic():
            Mark.objects.create(label="work")
            ctx.checkpoint(1)

    with pytest.raises(StaleToken):
        step()
    assert not Mark.objects.exists()


def test_a_step_and_its_checkpoint_commit_together(job: Job, ctx: JobContext) -> None:
    with transaction.atomic():
        Mark.objects.create(label="work")
        ctx.checkpoint(1)
        with Session() as other:
            assert other.sql("SELECT 1 FROM django_reliable_jobs_jobcheckpoint") == []
    assert (Mark.objects.count(), JobCheckpoint.objects.get().value) == (1, 1)


def test_what_was_rolled_back_is_not_the_state(ctx: JobContext) -> None:
    """A handler that tries a step again from `ctx.state` would otherwise skip it."""
    ctx.checkpoint("first")
    with transaction.atomic():
        ctx.checkpoint("second")
        assert ctx.state == "second"
        transaction.set_rollback(True)
    assert ctx.state == "first"
    with transaction.atomic():
        ctx.checkpoint("third")
    assert ctx.state == "third"


def test_what_a_savepoint_took_back_is_not_the_state(ctx: JobContext) -> None:
    with transaction.atomic():
        ctx.checkpoint("outer")
        with transaction.atomic():
            ctx.checkpoint("inner")
            transaction.set_rollback(True)
        assert ctx.state == "outer"
    assert ctx.state == "outer"


def test_nothing_is_left_of_a_first_checkpoint_that_was_rolled_back(ctx: JobContext) -> None:
    with transaction.atomic():
        ctx.checkpoint("gone")
        transaction.set_rollback(True)
    assert ctx.state is None


def test_state_in_a_transaction_is_stamped_outside_of_it(job: Job, ctx: JobContext) -> None:
    """An older attempt is shut out from this moment on, not from the end of a long transaction."""
    with transaction.atomic():
        assert ctx.state is None
        with Session() as other:
            assert other.sql("SELECT fencing_token FROM django_reliable_jobs_jobcheckpoint") == [(job.fencing_token,)]
        transaction.set_rollback(True)
    assert JobCheckpoint.objects.get().fencing_token == job.fencing_token


def test_a_checkpoint_in_an_open_transaction_does_not_hold_up_the_heartbeat(job: Job, ctx: JobContext) -> None:
    with Session() as worker:
        worker.do(impatient)
        with transaction.atomic():
            ctx.checkpoint(1)
            fetch("SET CONSTRAINTS ALL IMMEDIATE")  # takes the key-share lock on the job now
            assert worker.do(heartbeat, "default", 30, [Held(lease_of(job).key)])


def test_a_newer_attempt_waits_for_the_step_that_is_under_way(job: Job, ctx: JobContext) -> None:
    with Session() as later:
        with transaction.atomic():
            ctx.checkpoint(60)
            newer = context_of(job, token=next_token())
            answer = later.start(lambda: newer.state)
            later.waits_for(answer)
        assert answer.result(60) == 60


def test_a_value_that_cannot_be_stored_saves_nothing(ctx: JobContext) -> None:
    with transaction.atomic():
        with pytest.raises(PayloadError, match="the checkpoint"):
            ctx.checkpoint({1, 2})
        Mark.objects.create(label="usable")
    assert not JobCheckpoint.objects.exists()
    assert ctx.state is None


def test_a_transaction_with_a_checkpoint_cannot_idle_for_ever(job: Job) -> None:
    attempt = Attempt(lease_of(job, timeout=60.0))
    attempt.start()
    with transaction.atomic():
        JobContext(attempt, "default").checkpoint(1)
        [(value,)] = fetch("SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'")
        assert 30_000 < int(value) <= 90_000
    [(value,)] = fetch("SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'")
    assert value == "0", "for that transaction only"


@pytest.mark.parametrize("status", ["DEAD", "CANCELLED", "FAILED", "QUEUED", "DONE"])
def test_a_handler_that_goes_on_after_its_job_is_settled_saves_nothing(job: Job, ctx: JobContext, status: str) -> None:
    """Case P20."""
    ctx.checkpoint(1)
    Job.objects.filter(pk=job.pk).update(status=status, locked_by=None, locked_until=None)
    with pytest.raises(StaleToken, match=f"job {job.pk} is not running under token {job.fencing_token}"):
        ctx.checkpoint(2)
    with pytest.raises(StaleToken), transaction.atomic():
        Mark.objects.create(label="the batch")
        ctx.checkpoint(3)
    assert JobCheckpoint.objects.get().value == 1
    assert not Mark.objects.exists()
