"""Atomic jobs: the handler's writes and the end of its job are one transaction (design, section 3)."""

from __future__ import annotations

import pytest

from django_reliable_jobs import control
from django_reliable_jobs.models import JobAttempt, JobCheckpoint, JobStatus
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.look import all_done, ended, errors, fresh, marks, reached, sql
from tests.support.probes import jobs as probes
from tests.support.probes.models import Child, Mark
from tests.support.probes.transactions import moves


@pytest.fixture(scope="module")
def worker(crew: Fleet) -> JobWorker:
    return crew.start("--slots", "2", "--grace", "2", settings={"LEASE": 6, "HEARTBEAT": 0.5})


def test_the_writes_and_done_commit_together(worker: JobWorker) -> None:
    job = moves.enqueue("together")
    found = ended(job)
    assert (found.status, found.value, found.attempts) == (JobStatus.DONE, "moved", 1)
    assert found.progress == {"done": 1, "total": 2, "message": ""}
    assert marks(job) == ["together"]
    (same_transaction,) = sql(
        "SELECT j.xmin = m.xmin FROM django_reliable_jobs_job j JOIN probes_mark m ON m.job_id = j.id WHERE j.id = %s",
        job.pk,
    )
    assert same_transaction == (True,)


def test_an_exception_rolls_the_writes_back(worker: JobWorker) -> None:
    job = moves.enqueue("rolled back", "error")
    found = reached(job, JobStatus.FAILED)
    assert marks(job) == []
    assert found.attempts == 1
    assert errors(job)[0].error_kind == "ValueError"
    control.run_now(job)
    assert ended(job).value == "second attempt"
    assert marks(job) == ["rolled back"]


def test_a_deferred_constraint_is_checked_before_the_job_is_done(worker: JobWorker) -> None:
    job = moves.enqueue("constraint", "constraint")
    reached(job, JobStatus.FAILED)
    assert marks(job) == []
    assert not Child.objects.exists()
    assert "IntegrityError" in errors(job)[0].error_kind


def test_an_error_in_a_callback_after_the_commit_leaves_the_job_done(worker: JobWorker) -> None:
    job = moves.enqueue("callback", "callback error")
    found = ended(job)
    assert (found.status, found.attempts, marks(job)) == (JobStatus.DONE, 1, ["callback"])
    assert errors(job) == []
    worker.logged("ZeroDivisionError")


def test_a_raised_retry_rolls_back(worker: JobWorker) -> None:
    job = moves.enqueue("raised", "raise retry")
    reached(job, JobStatus.FAILED)
    assert marks(job) == []


@pytest.mark.parametrize(("end", "status", "attempts"), [("return retry", JobStatus.FAILED, 1),
                                                        ("return snooze", JobStatus.QUEUED, 0)])  # fmt: skip
def test_a_returned_retry_or_snooze_commits(worker: JobWorker, end: str, status: str, attempts: int) -> None:
    job = moves.enqueue(end, end)
    wait_until(lambda: marks(job))
    found = fresh(job)
    assert (found.status, found.attempts, found.locked_by) == (status, attempts, None)
    assert sql("SELECT %s > now() + interval '30 s'", found.run_at) == [(True,)]
    kept = list(JobAttempt.objects.filter(job_id=job.pk).values_list("error_kind", "error_message"))
    assert kept == ([("Retry", "half of it is done")] if end == "return retry" else [])


def test_a_result_that_cannot_be_stored_does_not_roll_back(worker: JobWorker) -> None:
    job = moves.enqueue("unstorable", "unstorable")
    assert (ended(job).status, fresh(job).reason, marks(job)) == (JobStatus.DONE, "result not stored", ["unstorable"])


def test_a_checkpoint_is_part_of_the_transaction(worker: JobWorker) -> None:
    job = moves.enqueue("checkpoint", "checkpoint")
    reached(job, JobStatus.FAILED)
    assert not JobCheckpoint.objects.filter(job_id=job.pk).exclude(value=None).exists()


def test_a_run_whose_lease_was_taken_meanwhile_leaves_nothing(worker: JobWorker) -> None:
    """Whoever took it has a newer token: the settle finds no row, and everything is rolled back."""
    job = moves.enqueue("stale", "wait")
    reached(job, JobStatus.RUNNING)
    sql("UPDATE django_reliable_jobs_job SET locked_by = gen_random_uuid(), locked_until = now() + interval '1 hour',"
        " fencing_token = nextval('django_reliable_jobs_fencing_token') WHERE id = %s", job.pk)  # fmt: skip
    taken = fresh(job)
    Mark.objects.create(label="stale go")
    worker.logged(f"probes.moves #{job.pk}")
    all_done([probes.note.enqueue("after") for _ in range(2)])
    wait_until(lambda: "is dropped" in worker.text, worker.tail)
    assert marks(job) == []
    found = fresh(job)
    assert (found.status, found.fencing_token, found.result) == (JobStatus.RUNNING, taken.fencing_token, None)
    sql("UPDATE django_reliable_jobs_job SET status = 'DEAD', locked_until = NULL WHERE id = %s", job.pk)


def test_a_cancelled_atomic_job_leaves_nothing(worker: JobWorker) -> None:
    job = moves.enqueue("cancelled", "wait")
    reached(job, JobStatus.RUNNING)
    assert control.cancel(job)
    assert ended(job).status == JobStatus.CANCELLED
    Mark.objects.create(label="cancelled go")
    assert marks(job) == []


@pytest.mark.parametrize("end", ["hang", "wait"])
def test_an_atomic_job_at_its_deadline_leaves_nothing_and_holds_nothing(worker: JobWorker, end: str) -> None:
    """Also when its thread does not obey: its transaction is ended by the server."""
    job = moves.using(timeout=0.5, max_attempts=1).enqueue(f"late {end}", end)
    found = ended(job)
    assert (found.status, found.reason) == (JobStatus.DEAD, "deadline exceeded")
    open_for_long = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND xact_start < now() - interval '4 s'"
    )
    wait_until(lambda: not sql(open_for_long), "the transaction to end")
    Mark.objects.create(label=f"late {end} go")
    assert marks(job) == []


def test_an_atomic_job_that_is_longer_than_its_lease_runs_once(worker: JobWorker) -> None:
    """Its transaction holds no lock on the row that the heartbeat extends."""
    job = moves.enqueue("long", "wait")
    reached(job, JobStatus.RUNNING)
    wait_until(lambda: sql("SELECT 1 WHERE clock_timestamp() > %s + interval '8 s'", fresh(job).started_at))
    Mark.objects.create(label="long go")
    assert (ended(job).status, fresh(job).attempts, fresh(job).losses) == (JobStatus.DONE, 1, 0)


def test_under_a_stricter_isolation_level_the_worker_does_not_start(crew: Fleet) -> None:
    options = '{"options": "-c default_transaction_isolation=repeatable\\\\ read"}'
    refused = crew.start(ready=False, env={"DATABASE_OPTIONS": options})
    assert refused.wait() == 1
    assert "reliable_jobs.E004" in refused.text
