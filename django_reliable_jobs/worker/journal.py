"""What a worker writes to its log about jobs: once for what a person may have to act on, nothing for what goes well."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from django.db import InterfaceError, OperationalError

from django_reliable_jobs import registry
from django_reliable_jobs.attempt import Attempt
from django_reliable_jobs.log_limit import LogLimit
from django_reliable_jobs.states import JobStatus

logger = logging.getLogger("django_reliable_jobs.worker")

_limit = LogLimit()
#: Jobs of unknown names that went DEAD since the last line about the name.
_unsaid_dead: Counter[str] = Counter()


def not_done(attempt: Attempt) -> None:
    """An attempt was recorded as something else than DONE."""
    lease, outcome = attempt.lease, attempt.outcome
    if outcome is None:
        return
    error = f": {outcome.error.kind}: {outcome.error.message[:500]}" if outcome.error is not None else ""
    if outcome.status is JobStatus.DEAD:
        logger.error(
            "%s #%s is DEAD after attempt %s (%s)%s", lease.name, lease.job_id, lease.attempt, outcome.reason, error
        )
    elif outcome.status is JobStatus.FAILED:
        logger.warning(
            "%s #%s failed, attempt %s of %s, again in %.1f s%s",
            lease.name, lease.job_id, lease.attempt, lease.max_attempts or "any number", outcome.delay or 0.0, error,
        )  # fmt: skip
    elif outcome.status is JobStatus.CANCELLED:
        logger.info("%s #%s is cancelled", lease.name, lease.job_id)


def outcome_refused(attempt: Attempt) -> None:
    """The row belongs to somebody else by now; the outcome is dropped."""
    status = attempt.outcome.status if attempt.outcome is not None else "nothing"
    logger.warning(
        "%s #%s: this worker lost its lease (token %s), so its outcome %s is dropped",
        attempt.lease.name, attempt.lease.job_id, attempt.lease.token, status,
    )  # fmt: skip


def not_isolated(attempt: Attempt) -> None:
    logger.warning(
        "%s #%s should run in a child process, but this worker has no supervisor to fork one: it runs in a thread",
        attempt.lease.name,
        attempt.lease.job_id,
    )


def unknown_job(name: str) -> None:
    """This process does not know the name of a job or of a schedule's job."""
    if _limit.due(("unknown job", name)):
        logger.warning(
            "no job is named %r here, nobody has imported its module: it is left to a worker that knows it. Looked for: %s",
            name, registry.looked_for(name),
        )  # fmt: skip


def unknown_dead(dead: Mapping[str, int], after: float) -> None:
    """Jobs whose names nobody knows have been given up: how many of each name."""
    for name, count in dead.items():
        _unsaid_dead[name] += count
        if _limit.due(("unknown dead", name)):
            logger.error(
                "%d jobs %r are DEAD (unknown job): no worker has known the name for %g s",
                _unsaid_dead.pop(name),
                name,
                after,
            )


def trouble(part: str, error: BaseException) -> None:
    """A round of this part of the worker failed. Without a connection the engine says so; anything else is news."""
    if is_connection_trouble(error):
        logger.debug("%s failed, it is tried again: %s", part, error)
    elif _limit.due(("trouble", part)):
        logger.error("%s failed, it is tried again: %s", part, str(error).strip())


def broken(part: str, error: BaseException) -> None:
    """This part of the worker met what it does not know. Its loop goes on, and may meet it again at once."""
    if _limit.due(("trouble", part)):
        logger.error("%s failed, it is tried again", part, exc_info=error)


def not_recorded_yet(attempt: Attempt, error: BaseException) -> None:
    """The database did not take an outcome, for a reason that may pass."""
    if _limit.due("not recorded"):
        logger.error(
            "the outcome of %s #%s is not recorded yet, it is offered again while its lease is held: %s",
            attempt.lease.name, attempt.lease.job_id, str(error).strip(),
        )  # fmt: skip


def database_trouble(tries: int, error: BaseException) -> None:
    """A try of the engine failed, so many in a row."""
    if _limit.due("database"):
        logger.warning("trouble with the database (%d in a row): %s", tries, str(error).strip())


def cut(seconds: float) -> None:
    """A connection is cut on which a statement has waited for so long."""
    if _limit.due("cut"):
        logger.warning("no answer from the database for %.0f s, the connection is cut", seconds)


def is_missing_right(error: BaseException) -> bool:
    """The role may not do this: no fault of what it wanted to write. See `rights.py`."""
    return getattr(error.__cause__, "sqlstate", None) == "42501"


def is_connection_trouble(error: BaseException) -> bool:
    return isinstance(error, (OperationalError, InterfaceError))
