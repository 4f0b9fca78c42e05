"""`run_jobs` in a `TestCase`: claim, handler and settle on the test's connection, in its transaction."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, connection, transaction
from django.test import TestCase, TransactionTestCase

from django_reliable_jobs import JobContext, Snooze, UnknownJob, control, job
from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.testing import (
    TooManyJobs,
    arun_jobs,
    assert_enqueued,
    assert_not_enqueued,
    captured_jobs,
    run_jobs,
)
from django_reliable_jobs.values.moments import LATEST
from tests.support.probes import jobs
from tests.support.probes.models import Mark


@job(name="kit.breaks_the_transaction", backoff=[60])
def breaks_the_transaction() -> None:
    Mark.objects.create(label="before the error")
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")


@job(name="kit.writes_and_fails", backoff=[60])
def writes_and_fails() -> None:
    Mark.objects.create(label="kept")
    raise ValueError("after the write")


@job(name="kit.atomic_fails", atomic=True, backoff=[60])
def atomic_fails() -> None:
    Mark.objects.create(label="rolled back")
    raise ValueError("in an atomic job")


@job(name="kit.saves_its_place", takes_context=True, backoff=[60])
def saves_its_place(ctx: JobContext) -> Any:
    if ctx.state is None:
        ctx.checkpoint({"page": 7})
        raise ValueError("once")
    return ctx.state


@job(name="kit.snoozes_once", takes_context=True)
def snoozes_once(ctx: JobContext) -> None:
    if ctx.state is None:
        ctx.checkpoint("snoozed")
        raise Snooze(60)


@job(name="kit.runs_others")
def runs_others() -> int:
    return len(run_jobs())


@job(name="kit.for_ever")
def for_ever() -> None:
    for_ever.enqueue()


class InATestCase(TestCase):
    def test_a_failing_handler_shows_its_own_traceback(self) -> None:
        failing = writes_and_fails.enqueue()
        with pytest.raises(ValueError, match="after the write") as caught:
            run_jobs()
        assert caught.traceback[-1].name == "writes_and_fails"
        assert Job.objects.get(pk=failing.pk).status == JobStatus.FAILED
        assert Mark.objects.filter(label="kept").exists()

    def test_broken_sql_takes_back_what_its_handler_wrote_and_no_more(self) -> None:
        Mark.objects.create(label="the test's")
        broken = breaks_the_transaction.enqueue()
        other = jobs.note.enqueue("the other's")
        first, second = run_jobs(raises=False)
        assert (first.job_id, first.status) == (broken.pk, JobStatus.FAILED)
        assert isinstance(first.error, DataError)
        assert (second.job_id, second.status) == (other.pk, JobStatus.DONE)
        assert set(Mark.objects.values_list("label", flat=True)) == {"the test's", "the other's"}

    def test_an_atomic_job_that_fails_leaves_nothing(self) -> None:
        atomic_fails.enqueue()
        assert [run.status for run in run_jobs(raises=False)] == [JobStatus.FAILED]
        assert not Mark.objects.exists()

    def test_a_checkpoint_is_there_for_the_next_attempt(self) -> None:
        saving = saves_its_place.enqueue()
        assert [run.status for run in run_jobs(advance=120, raises=False)] == [JobStatus.FAILED, JobStatus.DONE]
        assert Job.objects.get(pk=saving.pk).result == {"page": 7}

    def test_the_connection_plans_and_prepares_as_before(self) -> None:
        names = "'plan_cache_mode', 'enable_seqscan', 'enable_bitmapscan', 'jit', 'lock_timeout'"
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT name, setting FROM pg_settings WHERE name IN ({names}) ORDER BY name")
            before = cursor.fetchall()
            threshold = connection.connection.prepare_threshold
            writes_and_fails.enqueue()
            breaks_the_transaction.enqueue()
            run_jobs(raises=False)
            cursor.execute(f"SELECT name, setting FROM pg_settings WHERE name IN ({names}) ORDER BY name")
            assert cursor.fetchall() == before
        assert connection.connection.prepare_threshold == threshold

    def test_a_job_that_enqueues_itself_for_ever_meets_the_limit(self) -> None:
        for_ever.enqueue()
        with pytest.raises(TooManyJobs, match="for_ever"):
            run_jobs(limit=20)

    def test_what_was_enqueued_can_be_asserted(self) -> None:
        with captured_jobs() as captured:
            jobs.hides.enqueue(3, card="4711")
        assert [one.name for one in captured] == [jobs.hides.name]
        assert_enqueued(jobs.hides, args=(3,), kwargs={"card": "4711"}, count=1)
        assert_enqueued(jobs.hides, run_at=captured[0].run_at, queue="default")
        assert_not_enqueued(jobs.hides, args=(4,))
        assert_not_enqueued(jobs.noop)
        with pytest.raises(AssertionError, match="was not enqueued 2 times, but 1 times"):
            assert_enqueued(jobs.hides, count=2)
        with pytest.raises(AssertionError, match="none"):
            assert_enqueued(jobs.noop)
        with pytest.raises(AssertionError, match="was enqueued: #"):
            assert_not_enqueued(jobs.hides)

    def test_a_handler_may_run_jobs_itself(self) -> None:
        outer = runs_others.using(priority=1).enqueue()
        jobs.note.enqueue("inner")
        assert [run.job_id for run in run_jobs()] == [outer.pk]
        assert Job.objects.get(pk=outer.pk).result == 1

    def test_paused_and_cancelled_jobs_do_not_run(self) -> None:
        jobs.noop.using(queue="paused").enqueue()
        control.pause_queue("paused")
        control.cancel(jobs.noop.enqueue())
        assert run_jobs() == []

    def test_runs_what_is_due_and_gives_the_outcomes(self) -> None:
        job = jobs.echo.enqueue({"a": [1, 2]})
        [run] = run_jobs()
        assert (run.job_id, run.name, run.attempt, run.status) == (job.pk, job.name, 1, JobStatus.DONE)
        assert run.job.result == {"a": [1, 2]}
        assert connection.in_atomic_block
        assert run_jobs() == []

    def test_runs_coroutines_on_the_test_s_connection(self) -> None:
        jobs.anote.enqueue("there")
        assert [run.status for run in run_jobs()] == [JobStatus.DONE]
        assert Mark.objects.filter(label="there").exists()

    def test_nothing_before_was_committed(self) -> None:
        assert not Job.objects.exists()
        assert not Mark.objects.exists()

    def test_runs_higher_priorities_first_and_no_future_job(self) -> None:
        low = jobs.noop.using(priority=-5).enqueue()
        jobs.noop.using(delay=60).enqueue()
        high = jobs.noop.using(priority=5, queue="other").enqueue()
        assert [run.job_id for run in run_jobs()] == [high.pk, low.pk]

    def test_callbacks_run_as_after_a_commit(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            transaction.on_commit(lambda: jobs.note.enqueue("by a callback"))
            assert len(run_jobs()) == 1
            assert run_jobs() == []
        assert Mark.objects.filter(label="by a callback").count() == 1
        assert callbacks

    def test_a_name_that_no_job_has(self) -> None:
        job = jobs.noop.enqueue()
        Job.objects.filter(pk=job.pk).update(name="nobody.knows")
        other = jobs.noop.enqueue()
        with pytest.raises(UnknownJob):
            run_jobs()
        ran = run_jobs(raises=False)
        assert {(run.job_id, run.status) for run in ran} == {(job.pk, JobStatus.QUEUED), (other.pk, JobStatus.DONE)}
        assert Job.objects.get(pk=job.pk).attempts == 0

    def test_a_limit(self) -> None:
        jobs.noop.enqueue_many([(1,), (2,), (3,)])
        with pytest.raises(TooManyJobs, match="run 2 jobs"):
            run_jobs(limit=2)
        assert sorted(Job.objects.values_list("status", flat=True)) == ["DONE", "DONE", "QUEUED"]

    def test_the_transaction_is_not_bounded_afterwards(self) -> None:
        jobs.isolated_atomic.enqueue("bounded")
        run_jobs()
        with connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            assert cursor.fetchone()[0] == "0"


@pytest.mark.django_db
def test_outside_of_a_test_run_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease would keep the job from every worker for a year if this process died."""
    made = jobs.noop.enqueue()
    with monkeypatch.context() as outside:
        outside.delattr("django.test.utils._TestState.saved_data")
        with pytest.raises(RuntimeError, match="jobworker --burst"):
            run_jobs()
    made.refresh_from_db()
    assert made.status == JobStatus.QUEUED
    assert [run.job_id for run in run_jobs()] == [made.pk]


class EnqueuedForTheWholeClass(TestCase):
    @classmethod
    def setUpTestData(cls) -> None:
        cls.prepared = jobs.note.enqueue("prepared")

    def test_runs_in_one_test(self) -> None:
        assert [run.job_id for run in run_jobs()] == [self.prepared.pk]

    def test_runs_in_another_one_too(self) -> None:
        assert [run.job_id for run in run_jobs()] == [self.prepared.pk]


class Advance(TestCase):
    def test_a_job_that_cannot_run_hides_no_later_one(self) -> None:
        stuck = jobs.noop.enqueue()
        Job.objects.filter(pk=stuck.pk).update(name="nobody.knows")
        later = jobs.noop.using(delay=3600).enqueue()
        ran = run_jobs(advance=86_400, raises=False)
        assert later.pk in [run.job_id for run in ran]
        row = Job.objects.get(pk=later.pk)
        assert abs(row.started_at - row.run_at) < timedelta(minutes=1)

    def test_a_job_at_the_end_of_time_is_not_waited_for(self) -> None:
        jobs.noop.using(run_at=LATEST).enqueue()
        assert run_jobs(advance=3600) == []

    def test_a_snoozed_job_runs_again_after_its_delay_without_an_attempt(self) -> None:
        snoozing = snoozes_once.enqueue()
        runs = run_jobs(advance=120)
        assert [(run.job_id, run.attempt, run.status) for run in runs] == [
            (snoozing.pk, 1, JobStatus.QUEUED),
            (snoozing.pk, 1, JobStatus.DONE),
        ]

    def test_a_delayed_job_runs_at_its_time(self) -> None:
        later = jobs.noop.using(delay=timedelta(hours=2)).enqueue()
        sooner = jobs.noop.using(delay=timedelta(hours=1)).enqueue()
        assert run_jobs(advance=timedelta(minutes=59)) == []
        assert [run.job_id for run in run_jobs(advance=timedelta(hours=2))] == [sooner.pk, later.pk]
        row = Job.objects.get(pk=later.pk)
        assert abs(row.started_at - row.run_at) < timedelta(minutes=1)

    def test_the_clock_is_the_real_one_in_the_next_test(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT statement_timestamp() - pg_catalog.statement_timestamp()")
            assert cursor.fetchone()[0] == timedelta(0)

    def test_retries_run_until_attempts_are_used_up(self) -> None:
        job = jobs.looks_up.using(max_attempts=3).enqueue("ValueError")
        runs = run_jobs(advance=timedelta(days=1), raises=False)
        assert [(run.job_id, run.attempt) for run in runs] == [(job.pk, 1), (job.pk, 2), (job.pk, 3)]
        assert [run.status for run in runs] == [JobStatus.FAILED, JobStatus.FAILED, JobStatus.DEAD]


class InATransactionTestCase(TransactionTestCase):
    def test_runs_atomic_and_plain_jobs(self) -> None:
        jobs.isolated_atomic.enqueue("one")
        jobs.note.enqueue("two")
        assert [run.status for run in run_jobs()] == [JobStatus.DONE] * 2
        assert not connection.in_atomic_block
        assert Mark.objects.count() == 2

    def test_does_not_move_the_clock(self) -> None:
        with pytest.raises(RuntimeError, match="TestCase"):
            run_jobs(advance=5)


class InAnAsyncTest(TestCase):
    async def test_runs_plain_and_coroutine_jobs(self) -> None:
        await jobs.anote.aenqueue("a")
        await jobs.note.aenqueue("b")
        assert [run.status for run in await arun_jobs()] == [JobStatus.DONE] * 2
        assert await Mark.objects.acount() == 2
