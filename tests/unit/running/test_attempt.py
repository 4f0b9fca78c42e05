"""Who decides what an attempt came to, and who stops it."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

import pytest

from django_reliable_jobs.errors import DeadlineExceeded, JobCancelled, LeaseLost
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.lease import Lease


def lease(**changes: object) -> Lease:
    values: dict[str, object] = {
        "job_id": 1, "token": 7, "name": "probes.noop", "queue": "default", "priority": 0, "args": "[]", "kwargs": "{}",
        "attempt": 1, "max_attempts": 5, "losses": 0, "timeout": 10.0, "idempotency_key": None, "scheduled_for": None,
        "run_at": datetime(2026, 1, 1, tzinfo=UTC),
    }  # fmt: skip
    return Lease(**(values | changes))  # type: ignore[arg-type]


def test_the_first_decision_counts() -> None:
    attempt = Attempt(lease())
    assert attempt.decide(outcome.DONE)
    assert not attempt.decide(outcome.RELEASED)
    assert attempt.outcome is outcome.DONE


def test_of_many_threads_one_decides() -> None:
    for _ in range(50):
        attempt, decided, start = Attempt(lease()), [], threading.Barrier(8)

        def decide(attempt: Attempt = attempt, decided: list[bool] = decided, start: threading.Barrier = start) -> None:
            start.wait()
            decided.append(attempt.decide(outcome.DONE))

        threads = [threading.Thread(target=decide) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(decided) == [False] * 7 + [True]


def test_the_first_reason_to_stop_stays() -> None:
    attempt, heard = Attempt(lease()), []
    attempt.on_stop = lambda _, kind: heard.append(kind)
    assert attempt.stop(JobCancelled)
    assert not attempt.stop(DeadlineExceeded)
    assert attempt.stop_kind is JobCancelled
    assert heard == [JobCancelled]
    with pytest.raises(JobCancelled):
        attempt.check()
    assert attempt.told


def test_what_is_decided_is_not_stopped() -> None:
    attempt = Attempt(lease())
    attempt.decide(outcome.DONE)
    assert not attempt.stop(DeadlineExceeded)
    attempt.check()


def test_the_deadline_counts_from_the_start_of_the_handler() -> None:
    attempt = Attempt(lease(timeout=10.0))
    assert attempt.deadline is None
    attempt.start()
    assert attempt.deadline == pytest.approx(time.monotonic() + 10, abs=1)


def test_without_a_timeout_there_is_no_deadline() -> None:
    attempt = Attempt(lease(timeout=None))
    attempt.start()
    assert attempt.deadline is None


def test_an_attempt_whose_lease_ran_out_while_it_waited_does_not_begin() -> None:
    attempt = Attempt(lease(), safe_until=time.monotonic() - 1)
    attempt.start()
    with pytest.raises(LeaseLost):
        attempt.check()
