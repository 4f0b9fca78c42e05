"""What an attempt came to, as a value: the executor makes it, the store records it.

An `Outcome` says which status the row gets, when it runs again and what is kept of the error. It does not say whether
the write is allowed: the row does, by its token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from django_reliable_jobs.values.states import REASON_EXPIRED, REASON_INFRASTRUCTURE, REASON_UNKNOWN_JOB, JobStatus


@dataclass(slots=True, frozen=True)
class ErrorRecord:
    """What is kept of a failed attempt; already made safe to store (see `error_text.describe_exception`)."""

    kind: str
    message: str
    traceback: str
    #: For the log of the process in which it was raised, and only until it is written; None if its values are hidden.
    exception: BaseException | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[ErrorRecord], tuple[str, str, str]]:
        return ErrorRecord, (self.kind, self.message, self.traceback)

    def let_go(self) -> None:
        """The exception holds its frames, and they the attempt."""
        object.__setattr__(self, "exception", None)


@dataclass(slots=True, frozen=True)
class Outcome:
    """`delay` is the seconds until `run_at`, None leaves `run_at` (and so the job's place in the order) as it is;
    `give_back` hands the attempt back (release, snooze, unknown job); `unbegun`: its handler was not called (protocol 31)."""

    status: JobStatus
    reason: str = ""
    delay: float | None = None
    give_back: bool = False
    result: str | None = None
    error: ErrorRecord | None = None
    unbegun: bool = False

    @property
    def is_unknown_job(self) -> bool:
        return self.reason == REASON_UNKNOWN_JOB


DONE = Outcome(JobStatus.DONE)
#: Handed back after its handler had begun: such a job never expires.
RELEASED = Outcome(JobStatus.QUEUED, give_back=True)
#: Handed back before its handler was called: if no earlier attempt had begun, the job can still expire.
UNBEGUN = Outcome(JobStatus.QUEUED, give_back=True, unbegun=True)
#: Its `expires_at` passed while it was held, before its handler was called (`Lease.expires_in`).
EXPIRED = Outcome(JobStatus.CANCELLED, REASON_EXPIRED, give_back=True, unbegun=True)


def done(result: str | None = None, reason: str = "") -> Outcome:
    return Outcome(JobStatus.DONE, reason=reason, result=result)


def snoozed(delay: float) -> Outcome:
    return Outcome(JobStatus.QUEUED, delay=delay, give_back=True)


def unknown_job(delay: float | None = None) -> Outcome:
    """Put back, in its place unless there is a delay, for a worker that knows the name."""
    return Outcome(JobStatus.QUEUED, reason=REASON_UNKNOWN_JOB, delay=delay, give_back=True, unbegun=True)


def dead(reason: str, error: ErrorRecord | None = None) -> Outcome:
    return Outcome(JobStatus.DEAD, reason=reason, error=error)


def failed(delay: float, error: ErrorRecord, *, last_attempt: bool, reason: str = "", dead_reason: str = "") -> Outcome:
    """A transient error: another attempt after `delay` seconds, or DEAD when this was the last one."""
    if last_attempt:
        return Outcome(JobStatus.DEAD, reason=dead_reason, error=error)
    return Outcome(JobStatus.FAILED, reason=reason, delay=delay, error=error)


def infrastructure(delay: float, error: ErrorRecord) -> Outcome:
    """Not the job's fault: another attempt after `delay` seconds, and this one is handed back. The row counts these."""
    return Outcome(JobStatus.FAILED, reason=REASON_INFRASTRUCTURE, delay=delay, error=error, give_back=True)


def cancelled(reason: str, error: ErrorRecord | None = None) -> Outcome:
    return Outcome(JobStatus.CANCELLED, reason=reason, error=error)
