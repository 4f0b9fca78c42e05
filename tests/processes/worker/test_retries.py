"""What a handler may answer, and when it is tried again (cases FR-P08, L18)."""

from __future__ import annotations

import pytest

from django_reliable_jobs.models import Job, JobStatus
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.look import all_done, ended, errors, fresh, marks, reached, sql
from tests.support.probes import jobs as probes
from tests.support.probes.jobs import ODD_DELAYS


@pytest.fixture(scope="module")
def worker(crew: Fleet) -> JobWorker:
    return crew.start("--slots", "4", settings={"LEASE": 10, "BACKOFF": {"base": 0.1, "factor": 2, "cap": 0.3}})


def waits(job: Job) -> list[float]:
    """Seconds between the end of each attempt and the start of the next, by the database's clock."""
    kept = errors(job)
    return [
        (later.started_at - earlier.finished_at).total_seconds()
        for earlier, later in zip(kept, kept[1:], strict=False)
        if later.started_at and earlier.finished_at
    ]


def test_an_error_is_tried_again_until_the_attempts_are_used_up(worker: JobWorker) -> None:
    job = ended(probes.answers.using(max_attempts=3).enqueue("error", None, 99))
    assert (job.status, job.reason, job.attempts) == (JobStatus.DEAD, "attempts used up", 3)
    assert [(a.attempt, a.status, a.reason) for a in errors(job)] == [
        (1, "FAILED", ""), (2, "FAILED", ""), (3, "DEAD", "attempts used up")]  # fmt: skip
    assert marks(job) == ["error 1", "error 2", "error 3"]


@pytest.mark.parametrize("how", ["raise", "return"])
@pytest.mark.parametrize("delay", [0.0, 0.4, None])
def test_retry_asks_for_another_attempt_after_its_delay(worker: JobWorker, how: str, delay: float | None) -> None:
    job = ended(probes.answers.enqueue("retry", delay, 3, how))
    assert (job.status, job.value, job.attempts) == (JobStatus.DONE, "answered", 3)
    assert [a.error_kind for a in errors(job)] == ["Retry", "Retry"]
    if delay:
        assert all(wait >= delay for wait in waits(job))


def test_the_last_retry_is_no_way_around_the_limit(worker: JobWorker) -> None:
    job = ended(probes.answers.using(max_attempts=2).enqueue("retry", 0.0, 99))
    assert (job.status, job.reason, job.attempts) == (JobStatus.DEAD, "attempts used up", 2)


@pytest.mark.parametrize("how", ["raise", "return"])
def test_snooze_uses_no_attempt(worker: JobWorker, how: str) -> None:
    job = ended(probes.answers.using(max_attempts=1).enqueue("snooze", 0.05, 4, how))
    assert (job.status, job.attempts, len(marks(job))) == (JobStatus.DONE, 1, 4)
    assert errors(job) == []
    assert marks(job) == ["snooze 1"] * 4


def test_a_permanent_failure_is_dead_at_once(worker: JobWorker) -> None:
    job = ended(probes.answers.enqueue("permanent", None, 99))
    assert (job.status, job.reason, job.attempts) == (JobStatus.DEAD, "permanent failure", 1)
    assert errors(job)[0].error_message == "there is no such customer"


@pytest.mark.parametrize(("kind", "attempts"), [("KeyError", 1), ("ValueError", 3)])
def test_an_exception_in_dead_on_is_dead_at_once_and_others_are_not(
    worker: JobWorker, kind: str, attempts: int
) -> None:
    """KeyError is a LookupError."""
    job = ended(probes.looks_up.using(max_attempts=3).enqueue(kind))
    assert (job.status, job.attempts) == (JobStatus.DEAD, attempts)


def test_a_backoff_list_gives_the_delays_and_its_last_one_repeats(worker: JobWorker) -> None:
    job = ended(probes.backs_off_by_list.using(max_attempts=4).enqueue())
    first, second, third = waits(job)
    assert first >= 0.025
    assert second >= 0.15
    assert third >= 0.15


def test_a_backoff_function_gives_the_delays(worker: JobWorker) -> None:
    job = ended(probes.backs_off_by_function.using(max_attempts=3).enqueue())
    first, second = waits(job)
    assert first >= 0.25
    assert second >= 0.025


def test_a_backoff_function_that_fails_does_not_leave_the_job_running(worker: JobWorker) -> None:
    job = reached(probes.backs_off_badly.enqueue(), JobStatus.FAILED)
    assert sql("SELECT %s > now() + interval '2 s'", job.run_at) == [(True,)], "the default backoff of 10 s instead"


def test_without_a_limit_it_is_tried_for_ever(worker: JobWorker) -> None:
    job = probes.never_gives_up.enqueue()
    wait_until(lambda: fresh(job).attempts >= 8)
    assert fresh(job).status in (JobStatus.FAILED, JobStatus.RUNNING)
    sql("UPDATE django_reliable_jobs_job SET cancel_requested_at = now() WHERE id = %s", job.pk)
    sql("UPDATE django_reliable_jobs_job SET status = 'CANCELLED' WHERE id = %s AND status = 'FAILED'", job.pk)
    ended(job)


@pytest.mark.parametrize("attempts", [46, 63, 1022, 1999, 10**6])
def test_a_large_number_of_attempts_does_not_overflow(worker: JobWorker, attempts: int) -> None:
    """Case FR-P08: base 0.01, factor 5, cap 0.2; 5 to the power of a million is no float."""
    limited, unlimited = (
        probes.never_gives_up.using(max_attempts=limit, delay=3600).enqueue() for limit in (attempts + 2, None)
    )
    for job in (limited, unlimited):
        sql("UPDATE django_reliable_jobs_job SET attempts = %s, run_at = now() WHERE id = %s", attempts, job.pk)
    found = ended(limited)
    assert (found.status, found.attempts) == (JobStatus.DEAD, attempts + 2)
    assert all(wait <= 30 for wait in waits(found))
    wait_until(lambda: fresh(unlimited).attempts >= attempts + 3)
    sql("UPDATE django_reliable_jobs_job SET cancel_requested_at = now() WHERE id = %s", unlimited.pk)
    sql("UPDATE django_reliable_jobs_job SET status = 'CANCELLED' WHERE id = %s AND status = 'FAILED'", unlimited.pk)
    ended(unlimited)


@pytest.mark.parametrize("kind", ODD_DELAYS)
def test_an_odd_delay_neither_loops_nor_leaves_the_job_running(worker: JobWorker, kind: str) -> None:
    """Case L18. Nonsense is an error of the handler, and so the normal backoff; what is far too long is capped."""
    job = probes.asks_for.using(max_attempts=2).enqueue(kind)
    if kind in ("10**12 s", "infinite"):
        found = reached(job, JobStatus.FAILED)
        assert sql("SELECT %s - now() BETWEEN interval '3649 days' AND interval '3651 days'", found.run_at) == [(True,)]
        return
    found = ended(job)
    assert (found.status, found.attempts) == (JobStatus.DEAD, 2)
    kinds = {attempt.error_kind for attempt in errors(job)}
    assert kinds == ({"Retry"} if kind == "zero" else {"TypeError"} if kind == "a string" else {"ValueError"})
    if kind != "zero":
        assert waits(job)[0] >= 0.05, "the backoff of the settings, jittered"


def test_a_job_that_has_not_started_by_its_expiry_is_cancelled(worker: JobWorker) -> None:
    late = probes.note.using(delay=0.5, expires=0.2).enqueue("too late")
    found = ended(late)
    assert (found.status, found.reason, found.attempts, marks(late)) == (JobStatus.CANCELLED, "expired", 0, [])
    in_time = probes.note.using(expires=60).enqueue("in time")
    all_done([in_time])


def test_a_retry_starts_after_the_expiry_too(worker: JobWorker) -> None:
    """`expires` is about the first start."""
    job = probes.answers.using(expires=1).enqueue("retry", 2.0, 2)
    found = ended(job)
    assert (found.status, found.reason, found.attempts) == (JobStatus.DONE, "", 2)


def test_a_job_in_the_future_starts_when_its_time_has_come(worker: JobWorker) -> None:
    job = ended(probes.note.using(delay=1.2).enqueue("on time"))
    assert sql(
        "SELECT %s >= %s AND %s < %s + interval '20 s'", job.started_at, job.run_at, job.started_at, job.run_at
    ) == [(True,)]
