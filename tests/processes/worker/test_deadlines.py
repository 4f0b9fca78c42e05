"""A handler that hangs loses its attempt at the deadline, and its slot goes on (design, protocol 9; case L14)."""

from __future__ import annotations

import time

import pytest

from django_reliable_jobs import control
from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.models import Job, JobCheckpoint, JobStatus
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.look import all_done, ended, errors, fresh, marked, sql
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark
from tests.support.probes.stubborn import hangs, hangs_async

GRACE = 1.0
#: What a busy machine may add to timeout and grace; a quiet one needs 0.2 s.
SLACK = 10.0

SYNC = ["sleep", "nap", "spin", "pg_sleep", "swallow errors", "swallow everything"]
ASYNC = ["block", "spin", "await", "swallow errors", "swallow everything", "thread", "query"]


@pytest.fixture(scope="module")
def worker(crew: Fleet) -> JobWorker:
    """`--grace` is also what a handler gets to obey. The lease is long: it is not what ends anything here."""
    return crew.start(
        "--slots", "2", "--grace", str(GRACE), "--queues", "default", settings={"LEASE": 30, "HEARTBEAT": 10}
    )


@pytest.fixture(scope="module")
def single(crew: Fleet) -> JobWorker:
    """One slot: what comes next runs in the same thread, or in the one that takes its place."""
    return crew.start("--slots", "1", "--grace", str(GRACE), "--queues", "one", settings={"LEASE": 30, "HEARTBEAT": 10})


def test_at_its_deadline_a_hanging_handler_is_dead_and_100_jobs_behind_it_finish(
    worker: JobWorker,
) -> None:
    """All at once: more hanging handlers than slots, and good jobs between and behind them."""
    begun = time.monotonic()
    hanging = [hangs.enqueue(how, f"sync {how}") for how in SYNC]
    good = probes.noop.enqueue_many([(n,) for n in range(50)])
    hanging += [hangs_async.enqueue(how, f"async {how}") for how in ASYNC]
    good += probes.anoop.enqueue_many([(n,) for n in range(50)])
    for job in hanging:
        found = ended(job, timeout=120)
        assert (found.status, found.reason) == (JobStatus.DEAD, "deadline exceeded"), found.args
        (attempt,) = errors(job)
        assert attempt.error_kind == "django_reliable_jobs.errors.DeadlineExceeded"
        assert found.finished_at is not None
        assert found.started_at is not None
        held = (found.finished_at - found.started_at).total_seconds()
        assert 1.0 <= held < 1.0 + GRACE + SLACK, f"{found.args}: {held:.1f} s"
    all_done(good)
    assert time.monotonic() - begun < 60 + 4 * (1 + GRACE) * len(hanging) / 2
    assert not sql("SELECT 1 FROM django_reliable_jobs_job WHERE losses > 0")


@pytest.mark.parametrize("how", ["sleep", "spin", "swallow everything"])
def test_the_error_says_where_a_hanging_handler_was(worker: JobWorker, how: str) -> None:
    job = ended(hangs.enqueue(how))
    (attempt,) = errors(job)
    assert "timeout of 1 s" in attempt.error_message
    assert "stubborn.py" in attempt.traceback


def test_a_query_is_cancelled_on_the_server(worker: JobWorker) -> None:
    job = hangs.enqueue("pg_sleep", "cancelled query")
    marked("cancelled query begins")
    wait_until(sleeping, "the query to run")
    assert ended(job).reason == "deadline exceeded"
    wait_until(lambda: not sleeping(), "the query to end", timeout=20)


def sleeping() -> list[tuple[object, ...]]:
    return sql("SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%%'")


@pytest.mark.parametrize("job", [hangs, hangs_async])
def test_a_connection_on_which_a_query_was_cancelled_is_not_used_again(single: JobWorker, job: JobDefinition) -> None:
    how = {hangs: "pg_sleep", hangs_async: "query"}[job]
    witness = probes.sessions.report_session if job is hangs else probes.sessions.backend_async
    before = ended(witness.using(queue="one").enqueue()).value
    ended(job.using(queue="one").enqueue(how))
    after = ended(witness.using(queue="one").enqueue()).value
    if job is hangs:
        before, after = before["backend"], after["backend"]
    assert before != after


@pytest.mark.parametrize(("job", "how"), [*((hangs, how) for how in SYNC), *((hangs_async, how) for how in ASYNC)])
def test_the_slot_of_a_hanging_handler_is_free_after_timeout_and_grace(
    single: JobWorker, job: JobDefinition, how: str
) -> None:
    """Whether its thread obeys or not; nothing is left of it in the next job's way."""
    hanging = job.using(queue="one").enqueue(how, f"only {how}")
    begun = time.monotonic()
    good = [probes.note.using(queue="one").enqueue("good"), probes.anote.using(queue="one").enqueue("good"),
            probes.note.using(queue="one").enqueue("good")]  # fmt: skip
    all_done(good, timeout=1.0 + GRACE + 3 * SLACK)
    took = time.monotonic() - begun
    assert ended(hanging).reason == "deadline exceeded"
    assert took < 1.0 + GRACE + 2 * SLACK, f"{took:.1f} s"


def test_a_task_that_a_coroutine_left_behind_does_not_run_beside_the_next_job(single: JobWorker) -> None:
    ended(hangs_async.using(queue="one").enqueue("leave a task", "forgotten"))
    ended(probes.anap.using(queue="one").enqueue(0.5, "next"))
    before = Mark.objects.filter(label="forgotten still there").count()
    all_done([probes.anap.using(queue="one").enqueue(0.5, "next") for _ in range(2)])
    assert Mark.objects.filter(label="forgotten still there").count() == before


def test_what_a_late_thread_writes_to_its_job_is_refused(crew: Fleet) -> None:
    """It goes on as a ghost: nothing of it reaches the job or its checkpoint once another attempt has been here.

    A job keeps the worker busy: an idle one that has lost a thread makes way for a fresh one, and the ghost dies with it.
    """
    worker = crew.start("--slots", "3", "--grace", str(GRACE), "--queues", "late")
    company = probes.meet.using(queue="late", timeout=600).enqueue("company")
    marked("company begins")
    job = hangs.using(queue="late", max_attempts=2, timeout=1).enqueue("write late", "late")
    failed = wait_until(lambda: Job.objects.filter(pk=job.pk, status=JobStatus.FAILED).first(), "the deadline")
    JobCheckpoint.objects.create(
        job_id=job.pk, fencing_token=failed.fencing_token + 1000, version=1, value="newer", updated_at=failed.run_at
    )
    Job.objects.filter(pk=job.pk).update(status=JobStatus.DEAD, run_at=failed.run_at)
    Mark.objects.create(label="late go")
    marked("late ok")  # progress goes nowhere
    marked("late checkpoint StaleToken")
    assert fresh(job).status == JobStatus.DEAD
    assert fresh(job).progress is None
    assert JobCheckpoint.objects.get(job_id=job.pk).value == "newer"
    Mark.objects.create(label="company go")
    all_done([company])
    assert worker.stop() == 0


def test_a_process_whose_threads_are_written_off_makes_way_for_a_fresh_one(crew: Fleet) -> None:
    worker = crew.start("--slots", "2", "--grace", "0.2", "--queues", "fresh")
    stuck = [hangs.using(queue="fresh").enqueue("sleep") for _ in range(2)]
    good = [probes.note.using(queue="fresh").enqueue(f"good {n}") for n in range(20)]
    all_done(good)
    assert {ended(job).reason for job in stuck} == {"deadline exceeded"}
    wait_until(lambda: len(worker.started()) >= 2, worker.tail)
    assert worker.stop() == 0
    assert not [job for job in good if fresh(job).losses]


def test_a_deadline_never_hits_a_later_job_in_the_same_thread(crew: Fleet) -> None:
    """Handlers that end just when their time is up, each followed by one that nothing may disturb."""
    worker = crew.start("--slots", "4", "--grace", "5", "--queues", "close")
    close = [
        kind.using(queue="close", timeout=0.1, max_attempts=1).enqueue(0.1 + (n % 40 - 20) / 1000)
        for n in range(240)
        for kind in ([probes.just_in_time] if n % 2 else [probes.just_in_time_async])
    ]
    calm = probes.calm.using(queue="close", max_attempts=1).enqueue_many([(0.01,) for _ in range(240)])
    calm += probes.calm_async.using(queue="close", max_attempts=1).enqueue_many([(0.01,) for _ in range(240)])
    all_done(calm, timeout=120)
    wait_until(lambda: not Job.objects.filter(queue="close", status=JobStatus.RUNNING).exists(), worker.tail)
    reasons = {fresh(job).reason for job in close}
    assert reasons == {"", "deadline exceeded"}, "some in time, some late, or it proves nothing"
    assert worker.stop() == 0


# -- cancelling a running job


@pytest.mark.parametrize("job", [probes.nap, probes.anap])
def test_a_cancelled_job_stops_at_its_next_check_or_await(worker: JobWorker, job: JobDefinition) -> None:
    """With a heartbeat of ten seconds: the notification has brought it."""
    running = job.enqueue(300, f"cancel {job.name}")
    marked(f"cancel {job.name} begins")
    begun = time.monotonic()
    assert control.cancel(running)
    found = ended(running)
    assert (found.status, found.reason, found.attempts) == (JobStatus.CANCELLED, "cancel requested", 1)
    assert time.monotonic() - begun < 8, "it came with the heartbeat, not with the notification"


@pytest.mark.parametrize(
    ("job", "how"),
    [(hangs, "nap"), (hangs, "pg_sleep"), (hangs, "swallow errors"), (hangs, "swallow everything"), (hangs, "sleep"),
     (hangs_async, "await"), (hangs_async, "block"), (hangs_async, "swallow everything"), (hangs_async, "thread")],
)  # fmt: skip
def test_a_handler_that_ignores_its_cancellation_is_treated_as_at_a_deadline(
    worker: JobWorker, job: JobDefinition, how: str
) -> None:
    label = f"ignore {job.name} {how}"
    running = job.using(timeout=600).enqueue(how, label)
    marked(f"{label} begins")
    assert control.cancel(running)
    found = ended(running, timeout=GRACE + 3 * SLACK)
    assert (found.status, found.reason) == (JobStatus.CANCELLED, "cancel requested")
    all_done([probes.note.enqueue("after") for _ in range(4)])


def test_a_cancelled_job_that_finishes_first_is_done(worker: JobWorker) -> None:
    job = probes.meet.enqueue("finishes")
    marked("finishes begins")
    sql("UPDATE django_reliable_jobs_job SET cancel_requested_at = now() WHERE id = %s", job.pk)
    Mark.objects.create(label="finishes go")
    assert ended(job).status in (JobStatus.DONE, JobStatus.CANCELLED)


def test_without_notifications_a_cancellation_comes_with_the_heartbeat(crew: Fleet) -> None:
    worker = crew.start("--queues", "deaf", settings={"LISTEN": False, "LEASE": 3, "HEARTBEAT": 1})
    job = probes.nap.using(queue="deaf").enqueue(300, "deaf")
    marked("deaf begins")
    assert control.cancel(job)
    assert ended(job).status == JobStatus.CANCELLED
    assert worker.stop() == 0
