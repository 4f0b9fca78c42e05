"""Runs a handler: a `Lease` in, an `Outcome` out. Knows no database.

Whatever a handler raises, `SystemExit` and `KeyboardInterrupt` included, is an outcome of this attempt; nothing of it
reaches the slot.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django_reliable_jobs import conf, outcome, payload, redaction
from django_reliable_jobs.attempt import Attempt
from django_reliable_jobs.backoff import retry_delay
from django_reliable_jobs.definition import JobDefinition
from django_reliable_jobs.errors import (
    DeadlineExceeded,
    JobCancelled,
    LeaseLost,
    PayloadError,
    PermanentFailure,
    Retry,
    Snooze,
    StopHandler,
)
from django_reliable_jobs.lease import Lease
from django_reliable_jobs.outcome import ErrorRecord, Outcome
from django_reliable_jobs.returned import refuse_unrun
from django_reliable_jobs.states import (
    REASON_ATTEMPTS,
    REASON_DEADLINE,
    REASON_PERMANENT,
    REASON_REQUESTED,
    REASON_RESULT,
)
from django_reliable_jobs.text import describe_exception, safe_text

logger = logging.getLogger("django_reliable_jobs.worker")

Call = Callable[..., Any]


def execute(attempt: Attempt, definition: JobDefinition, call: Callable[[list[Any], dict[str, Any]], Any]) -> Outcome:
    """Decode the arguments, `call` the handler with them, and say what came of it. Never raises an `Exception`."""
    lease = attempt.lease
    try:
        attempt.check()
        value = call(*payload.loads_call(lease.args, lease.kwargs))
        refuse_unrun(value)
    except BaseException as error:  # noqa: BLE001 - that is the point: the attempt fails, the slot goes on
        return outcome_of_error(attempt, definition, error)
    return outcome_of_value(lease, definition, value)


def outcome_of_value(lease: Lease, definition: JobDefinition, value: Any) -> Outcome:
    """What a returned value means."""
    if value is None:
        return outcome.DONE
    if isinstance(value, Retry):
        return _another_attempt(lease, definition, value)
    if isinstance(value, Snooze):
        return outcome.snoozed(value.delay)
    try:
        return outcome.done(payload.dumps(value, "the result", conf.current().max_payload_bytes))
    except PayloadError as error:
        logger.warning("%s #%s is DONE, but its result is not stored: %s", lease.name, lease.job_id, error)
        return outcome.done(reason=REASON_RESULT)


def outcome_of_error(attempt: Attempt, definition: JobDefinition, error: BaseException) -> Outcome:
    """What an exception means. A handler that was told to stop is judged by why, whatever it raises on its way out."""
    lease = attempt.lease
    if isinstance(error, Retry):
        return _another_attempt(lease, definition, error)
    if isinstance(error, Snooze):
        return outcome.snoozed(error.delay)
    if isinstance(error, PermanentFailure):
        return outcome.dead(REASON_PERMANENT, record(lease, definition, error))
    if attempt.stop_kind is None and isinstance(error, LeaseLost):
        # Not this job's lease: that of a guard the handler held, or the settle of an atomic job was refused.
        return transient(lease, definition, record(lease, definition, error))
    if attempt.stop_kind is not None or isinstance(error, StopHandler):
        kind: Any = attempt.stop_kind or type(error)
        kept = record(lease, definition, error)
        if attempt.stop_kind is not None and isinstance(error, asyncio.CancelledError):
            # How a coroutine is told; whether it obeys before the watchdog has said why is chance.
            kept = replace(kept, kind=f"{kind.__module__}.{kind.__qualname__}", message="cancelled at an await")
        return stopped(lease, definition, kind, kept)
    if isinstance(error, definition.dead_on):
        return outcome.dead(REASON_PERMANENT, record(lease, definition, error))
    return transient(lease, definition, record(lease, definition, error))


def stopped(lease: Lease, definition: JobDefinition, kind: type[StopHandler], error: ErrorRecord) -> Outcome:
    """What a handler comes to that was told to stop."""
    if issubclass(kind, JobCancelled):
        return outcome.cancelled(REASON_REQUESTED, error)
    if issubclass(kind, LeaseLost):
        # If the row is still ours (only the database was out of reach), nobody has lost an attempt by it.
        return outcome.RELEASED
    if issubclass(kind, DeadlineExceeded):
        return transient(lease, definition, error, REASON_DEADLINE)
    return transient(lease, definition, error)


def transient(lease: Lease, definition: JobDefinition, error: ErrorRecord, reason: str = "") -> Outcome:
    """Another attempt after the backoff, or DEAD if this was the last one."""
    return outcome.failed(
        _delay(lease, definition),
        error,
        last_attempt=lease.last_attempt,
        reason=reason,
        dead_reason=reason or REASON_ATTEMPTS,
    )


def record(lease: Lease, definition: JobDefinition, error: BaseException) -> ErrorRecord:
    """What is kept of the error, without the values of redacted arguments that it quotes."""
    hidden = _secrets(lease, definition)
    return ErrorRecord(*(redaction.scrub(text, hidden) for text in describe_exception(error)))


def _secrets(lease: Lease, definition: JobDefinition) -> list[str]:
    if not definition.redact:
        return []
    try:
        return redaction.secrets(definition, *payload.loads_call(lease.args, lease.kwargs))
    except PayloadError:
        return []  # so the handler has not seen them either


def _another_attempt(lease: Lease, definition: JobDefinition, asked: Retry) -> Outcome:
    delay = _delay(lease, definition) if asked.delay is None else asked.delay
    error = ErrorRecord("Retry", redaction.scrub(safe_text(asked, 1000), _secrets(lease, definition)), "")
    return outcome.failed(delay, error, last_attempt=lease.last_attempt, dead_reason=REASON_ATTEMPTS)


def _delay(lease: Lease, definition: JobDefinition) -> float:
    return retry_delay(definition.backoff or conf.current().backoff, lease.attempt, random.random)
