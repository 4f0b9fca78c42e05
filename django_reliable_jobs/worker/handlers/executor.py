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

from django_reliable_jobs import conf, payload
from django_reliable_jobs.definitions import redaction
from django_reliable_jobs.definitions.job import JobDefinition
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
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.running.returned import refuse_unrun
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.backoff import retry_delay
from django_reliable_jobs.values.error_text import describe_exception, safe_text
from django_reliable_jobs.values.lease import Lease
from django_reliable_jobs.values.outcome import ErrorRecord, Outcome
from django_reliable_jobs.values.states import (
    REASON_ATTEMPTS,
    REASON_DEADLINE,
    REASON_PERMANENT,
    REASON_REQUESTED,
    REASON_RESULT,
)

logger = logging.getLogger("django_reliable_jobs.worker")

Call = Callable[..., Any]
#: Says what of the infrastructure has failed if an error comes of that, otherwise nothing. See `infrastructure`.
Judge = Callable[[BaseException], str]

#: So many times a job is handed back for the infrastructure's failures before they count as its own (protocol 30).
FREE_FAILURES = 3
#: Seconds to wait at least after each of them: together they outlast a failover. Jittered to 50-100 %.
FREE_PAUSES = (4.0, 15.0, 45.0)
#: Seconds after which a job is tried again that could not begin for want of a connection. Jittered likewise.
UNBEGUN_PAUSE = 2.0


def never(error: BaseException) -> str:
    """No error is the infrastructure's."""
    return ""


def execute(
    attempt: Attempt,
    definition: JobDefinition,
    call: Callable[[list[Any], dict[str, Any]], Any],
    judge: Judge = never,
) -> Outcome:
    """Decode the arguments, `call` the handler with them, and say what came of it. Never raises an `Exception`."""
    lease = attempt.lease
    try:
        attempt.check()
        value = call(*payload.loads_call(lease.args, lease.kwargs))
        refuse_unrun(value)
    except BaseException as error:  # noqa: BLE001 - that is the point: the attempt fails, the slot goes on
        return outcome_of_error(attempt, definition, error, judge)
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
        text = "%s #%s is DONE, but its result is not stored: %s"
        logger.warning(text, lease.name, lease.job_id, error, extra=lease.log_fields)
        return outcome.done(reason=REASON_RESULT)


def outcome_of_error(
    attempt: Attempt, definition: JobDefinition, error: BaseException, judge: Judge = never
) -> Outcome:
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
        return infrastructure(lease, definition, record(lease, definition, error), "the lease of a guard was lost")
    if attempt.stop_kind is not None or isinstance(error, StopHandler):
        kind: Any = attempt.stop_kind or type(error)
        kept = record(lease, definition, error)
        if attempt.stop_kind is not None and isinstance(error, asyncio.CancelledError):
            # How a coroutine is told; whether it obeys before the watchdog has said why is chance.
            kept = replace(kept, kind=f"{kind.__module__}.{kind.__qualname__}", message="cancelled at an await")
        return stopped(lease, definition, kind, kept)
    if isinstance(error, definition.dead_on):
        return outcome.dead(REASON_PERMANENT, record(lease, definition, error))
    if why := judge(error):
        return infrastructure(lease, definition, record(lease, definition, error), why)
    return transient(lease, definition, record(lease, definition, error))


def infrastructure(lease: Lease, definition: JobDefinition, error: ErrorRecord, why: str) -> Outcome:
    """Not the job's fault: no attempt is used the first few times. On the last attempt a failure like any other, since
    `max_attempts` bounds how often a job is begun."""
    times = lease.infrastructure_failures
    if times < FREE_FAILURES and not lease.last_attempt:
        pause = FREE_PAUSES[times] * random.uniform(0.5, 1.0)
        return outcome.infrastructure(max(pause, _delay(lease, definition)), error)
    said = f"{why}; " + ("it was the last attempt" if times < FREE_FAILURES else f"handed back {times} times before")
    return transient(lease, definition, replace(error, message=f"{error.message[:9_000]} [{said}]"))


def unbegun() -> Outcome:
    """The handler was not called, for want of a connection."""
    return replace(outcome.UNBEGUN, delay=UNBEGUN_PAUSE * random.uniform(0.5, 1.0))


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
    kind, message, trace = (redaction.scrub(text, hidden) for text in describe_exception(error))
    # Of a job that hides values only the scrubbed texts: the frames hold the values, and so may whatever it was raised from.
    return ErrorRecord(kind, message, trace, None if definition.redact else error)


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
