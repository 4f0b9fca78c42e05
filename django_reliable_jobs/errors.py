"""Every error that the package raises.

`ReliableJobsError` is the base of those that are ordinary mistakes or conditions. The three signals that stop a
running handler (`DeadlineExceeded`, `JobCancelled`, `LeaseLost`) derive from `BaseException`, so that an `except
Exception` in a handler does not swallow them; so do asyncio's own `CancelledError` and `KeyboardInterrupt`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_reliable_jobs.values.backoff import requested_delay


class ReliableJobsError(Exception):
    """Base of the package's errors."""


class PayloadError(ReliableJobsError, ValueError):
    """A value cannot be stored as JSON and come back as it went in. The message names the argument."""


class UnknownJob(ReliableJobsError, LookupError):
    """No job of this name is registered in this process."""


class JobConfigurationError(ReliableJobsError, TypeError):
    """A job definition is wrong: raised where the decorator is applied."""


class NotRun(ReliableJobsError, TypeError):
    """A function returned work that nobody would do: a generator, or an awaitable where nothing can be awaited."""


class AlreadyEnqueued(ReliableJobsError):
    """An unfinished job holds the `unique_key` and `if_exists="raise"` was asked for. `.job` is that job."""

    def __init__(self, message: str, job: Any = None) -> None:
        super().__init__(message)
        self.job = job


class JobNotChangeable(ReliableJobsError):
    """An operator's verb met a job in a status that does not allow it; nothing was changed."""


class StaleToken(ReliableJobsError):
    """A newer owner has been seen: the writer's fencing token is no longer the latest."""


class GuardUnavailable(ReliableJobsError):
    """The guard's store did not answer within `GUARDS["TIMEOUT"]`: whether the key is free is not known."""


class MigrationLockTimeout(ReliableJobsError):
    """Another process held the migration lock for as long as the caller would wait. Nothing was changed."""


class MigrationLockLost(ReliableJobsError):
    """The migration lock was held, and its connection was cut: somebody else may hold it now."""


class PermanentFailure(ReliableJobsError):
    """Raised by a handler: the job goes to DEAD at once, whatever attempts are left."""


class Retry(ReliableJobsError):
    """Asks for another attempt; raise it (an `atomic` job rolls back) or return it (its writes commit).

    `delay` is in seconds or a `timedelta`; without it the job's backoff decides. It uses up an attempt: when none is
    left the job goes to DEAD.
    """

    def __init__(self, delay: float | timedelta | None = None, message: str = "") -> None:
        super().__init__(message or "the handler asked for another attempt")
        self.delay = None if delay is None else requested_delay(delay)


class Snooze(ReliableJobsError):
    """Puts the job back for `delay` seconds (or a `timedelta`) without using up an attempt; raised or returned."""

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__("the handler put the job back for later")
        self.delay = requested_delay(delay)


class HandlerError(ReliableJobsError):
    """In log records: what a handler raised, as text. It ran in another process, or its definition hides values."""


class StopHandler(BaseException):
    """Base of the signals that stop a running handler. Not an `Exception`, on purpose."""


class DeadlineExceeded(StopHandler):
    """The attempt has run for longer than its `timeout`. Counts as a transient error."""


class JobCancelled(StopHandler):
    """Somebody asked for the job to be cancelled."""


class LeaseLost(StopHandler):
    """Another worker owns the job now, or this one could not reach the database for a whole lease."""
