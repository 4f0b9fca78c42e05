"""What a handler's return value or exception means for its job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.errors import (
    DeadlineExceeded,
    JobCancelled,
    LeaseLost,
    PermanentFailure,
    Retry,
    Snooze,
    StopHandler,
)
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.values.outcome import Outcome
from django_reliable_jobs.values.states import JobStatus
from django_reliable_jobs.worker.handlers.executor import execute
from tests.unit.running.test_attempt import lease

DEFINITION = JobDefinition(lambda *args, **kwargs: None, "probes.noop", backoff=(4.0,), dead_on=(LookupError,))


def result_of(
    *,
    returned: Any = None,
    raised: BaseException | None = None,
    attempt: int = 1,
    stop: type[StopHandler] | None = None,
) -> Outcome:
    running = Attempt(lease(attempt=attempt, max_attempts=3))

    def call(args: list[Any], kwargs: dict[str, Any]) -> Any:
        if stop is not None:
            running.stop(stop)
        if raised is not None:
            raise raised
        return returned

    return execute(running, DEFINITION, call)


@pytest.mark.parametrize(
    ("returned", "status", "reason", "result", "delay", "give_back"),
    [
        (None, "DONE", "", None, None, False),
        ({"a": [1, 2.5, None]}, "DONE", "", '{"a":[1,2.5,null]}', None, False),
        (object(), "DONE", "result not stored", None, None, False),
        ({1, 2}, "DONE", "result not stored", None, None, False),
        (float("nan"), "DONE", "result not stored", None, None, False),
        ("x" * 2_000_000, "DONE", "result not stored", None, None, False),
        (Retry(8), "FAILED", "", None, 8.0, False),
        (Snooze(9), "QUEUED", "", None, 9.0, True),
    ],
)
def test_a_returned_value(
    returned: Any, status: str, reason: str, result: str | None, delay: float | None, give_back: bool
) -> None:
    came = result_of(returned=returned)
    assert (came.status, came.reason, came.delay, came.give_back) == (status, reason, delay, give_back)
    assert (came.result or "").replace(" ", "") == (result or "")


@pytest.mark.parametrize(
    ("raised", "attempt", "status", "reason", "delay"),
    [
        (ValueError("x"), 1, "FAILED", "", 4.0),
        (ValueError("x"), 3, "DEAD", "attempts used up", None),
        (Retry(8), 1, "FAILED", "", 8.0),
        (Retry(), 1, "FAILED", "", 4.0),
        (Retry(8), 3, "DEAD", "attempts used up", None),
        (Snooze(9), 3, "QUEUED", "", 9.0),
        (PermanentFailure("x"), 1, "DEAD", "permanent failure", None),
        (KeyError("x"), 1, "DEAD", "permanent failure", None),
        (SystemExit(3), 1, "FAILED", "", 4.0),
        (KeyboardInterrupt(), 1, "FAILED", "", 4.0),
        (GeneratorExit(), 1, "FAILED", "", 4.0),
        (asyncio.CancelledError(), 1, "FAILED", "", 4.0),
        (DeadlineExceeded("its own"), 1, "FAILED", "deadline exceeded", 4.0),
        (MemoryError(), 3, "DEAD", "attempts used up", None),
    ],
)
def test_a_raised_exception(raised: BaseException, attempt: int, status: str, reason: str, delay: float | None) -> None:
    came = result_of(raised=raised, attempt=attempt)
    assert (came.status, came.reason) == (status, reason)
    if delay is None:
        assert came.delay is None or came.status == "DEAD"
    else:
        assert came.delay == pytest.approx(delay, rel=0.51)
    assert (came.error is None) == isinstance(raised, Snooze)


@pytest.mark.parametrize(
    ("stop", "status", "reason", "give_back"),
    [
        (JobCancelled, "CANCELLED", "cancel requested", False),
        (DeadlineExceeded, "FAILED", "deadline exceeded", False),
        (LeaseLost, "QUEUED", "", True),
    ],
)
@pytest.mark.parametrize("raised", [ValueError("on its way out"), asyncio.CancelledError(), KeyError("x"), None])
def test_a_handler_that_was_told_to_stop_is_judged_by_why(
    stop: type[StopHandler], status: str, reason: str, give_back: bool, raised: BaseException | None
) -> None:
    came = result_of(raised=raised or stop("told"), stop=stop)
    assert (came.status, came.reason, came.give_back) == (status, reason, give_back)


def test_a_handler_that_finished_although_it_was_told_to_stop_is_done() -> None:
    assert result_of(returned=1, stop=JobCancelled).status is JobStatus.DONE


@pytest.mark.parametrize("kind", [DeadlineExceeded, JobCancelled])
def test_a_coroutine_that_obeys_its_cancellation_is_recorded_as_what_stopped_it(kind: type[StopHandler]) -> None:
    """It may come back before the watchdog has said why; what is kept must not depend on that."""
    came = result_of(raised=asyncio.CancelledError(), stop=kind)
    assert came.error is not None
    assert came.error.kind == f"django_reliable_jobs.errors.{kind.__name__}"
    assert "CancelledError" in came.error.traceback
    own = result_of(raised=asyncio.CancelledError())
    assert own.error is not None
    assert own.error.kind == "asyncio.exceptions.CancelledError", "nobody told it"


def test_the_last_attempt_that_hits_its_deadline_says_so() -> None:
    came = result_of(raised=DeadlineExceeded("x"), attempt=3, stop=DeadlineExceeded)
    assert (came.status, came.reason) == ("DEAD", "deadline exceeded")


def test_an_attempt_that_was_stopped_before_it_began_does_not_call_the_handler() -> None:
    running = Attempt(lease())
    running.stop(JobCancelled)
    called: list[int] = []
    came = execute(running, DEFINITION, lambda args, kwargs: called.append(1))
    assert (came.status, called) == ("CANCELLED", [])


def test_arguments_that_do_not_decode_are_an_error_of_the_attempt() -> None:
    came = execute(Attempt(lease(args="[")), DEFINITION, lambda args, kwargs: None)
    assert came.status == "FAILED"
    assert came.error is not None
