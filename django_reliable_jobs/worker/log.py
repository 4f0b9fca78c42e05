"""What a worker writes to its log about jobs: once for what a person may have to act on, nothing for what goes well."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from django.db import InterfaceError, OperationalError

from django_reliable_jobs.definitions import registry
from django_reliable_jobs.errors import HandlerError
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.values.log_limit import LogLimit
from django_reliable_jobs.values.outcome import ErrorRecord
from django_reliable_jobs.values.states import REASON_INFRASTRUCTURE, JobStatus

logger = logging.getLogger("django_reliable_jobs.worker")

_limit = LogLimit()
#: Since when the database gives trouble ("since"), and whether that was said ("said").
_away: dict[str, float] = {}
#: Jobs of unknown names that went DEAD since the last line about the name.
_unsaid_dead: Counter[str] = Counter()
#: Attempts that failed by no fault of their job since the last line about one.
_unsaid_failures: Counter[str] = Counter()
#: Whose frames come before a handler's.
_OURS = ("django_reliable_jobs.worker.", "asyncio.")


def not_done(attempt: Attempt) -> None:
    """An attempt was recorded as something else than DONE."""
    lease, outcome = attempt.lease, attempt.outcome
    if outcome is None:
        return
    error = f": {outcome.error.kind}: {outcome.error.message[:500]}" if outcome.error is not None else ""
    more: dict[str, Any] = {"extra": lease.log_fields, "exc_info": exc_info(outcome.error)}
    if outcome.status is JobStatus.DEAD:
        text = "%s #%s is DEAD after attempt %s (%s)%s"
        logger.error(text, lease.name, lease.job_id, lease.attempt, outcome.reason, error, **more)
    elif outcome.reason == REASON_INFRASTRUCTURE:
        _not_its_fault(
            "%s #%s could not go on, no attempt used, again in %.1f s%s%s",
            (lease.name, lease.job_id, outcome.delay or 0.0, error), more,
        )  # fmt: skip
    elif outcome.status is JobStatus.FAILED:
        of = lease.max_attempts or "any number"
        text = "%s #%s failed, attempt %s of %s, again in %.1f s%s"
        logger.warning(text, lease.name, lease.job_id, lease.attempt, of, outcome.delay or 0.0, error, **more)
    elif outcome.status is JobStatus.CANCELLED:
        logger.info("%s #%s is cancelled", lease.name, lease.job_id, extra=lease.log_fields)
    if outcome.error is not None:
        outcome.error.let_go()


def unbegun(attempt: Attempt, why: str) -> None:
    """The handler was not called, for want of a connection."""
    lease = attempt.lease
    _not_its_fault(
        "%s #%s could not begin and is handed back: %s%s", (lease.name, lease.job_id, why), {"extra": lease.log_fields}
    )


def _not_its_fault(text: str, values: tuple[Any, ...], more: dict[str, Any]) -> None:
    """Once a minute, with the number of others since: when the database fails it fails under all jobs."""
    if _limit.due("infrastructure"):
        unsaid = _unsaid_failures.pop("all", 0)
        logger.warning(text, *values, f" ({unsaid} more since the last message)" if unsaid else "", **more)
    else:
        _unsaid_failures["all"] += 1


def exc_info(error: ErrorRecord | None) -> Any:
    """For a log record: the exception with the handler's own frames; text that says the same where it is not at hand."""
    if error is None or error.kind == "Retry":
        return None
    if (exception := error.exception) is not None:
        trace = exception.__traceback__
        while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
            trace = trace.tb_next
        return type(exception), exception, trace or exception.__traceback__
    told = HandlerError(f"{error.kind}: {error.message}")
    if error.traceback:
        told.__cause__ = HandlerError(f'\n"""\n{error.traceback}"""')
    return HandlerError, told, None


def outcome_refused(attempt: Attempt) -> None:
    """The row belongs to somebody else by now; the outcome is dropped."""
    status = attempt.outcome.status if attempt.outcome is not None else "nothing"
    logger.warning(
        "%s #%s: this worker lost its lease (token %s), so its outcome %s is dropped",
        attempt.lease.name, attempt.lease.job_id, attempt.lease.token, status, extra=attempt.lease.log_fields,
    )  # fmt: skip
    if attempt.outcome is not None and attempt.outcome.error is not None:
        attempt.outcome.error.let_go()


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


def unknown_queues(queues: Iterable[str]) -> None:
    """Queues in `--queues` or `--exclude-queues` that no definition, no waiting job and no pause names."""
    for queue in queues:
        close = get_close_matches(queue, registry.queues(), 1)
        hint = f"did you mean {close[0]!r}?" if close else f"definitions name {', '.join(sorted(registry.queues()))}"
        logger.warning("queue %r is named by no job definition and by no job that waits; %s", queue, hint)


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
    """A round of this part of the worker failed. Without a connection `database_trouble` says so; anything else is news."""
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
    """A try of the engine or the heartbeat failed, so many in a row."""
    _away.setdefault("since", time.monotonic())
    if _limit.due("database"):
        _away["said"] = True
        logger.warning("database error, %d in a row: %s", tries, str(error).strip())


def database_back() -> None:
    """What failed goes well again. That is said if the failure was."""
    since, said = _away.pop("since", None), _away.pop("said", False)
    if since is not None and said:
        logger.warning("the database answers again, after %.0f s", time.monotonic() - since)


def cut(seconds: float) -> None:
    """A connection is cut on which a statement has waited for so long."""
    if _limit.due("cut"):
        logger.warning("no answer from the database for %.0f s, the connection is cut", seconds)


def is_missing_right(error: BaseException) -> bool:
    """The role may not do this: no fault of what it wanted to write. See `rights.py`."""
    return getattr(error.__cause__, "sqlstate", None) == "42501"


def is_connection_trouble(error: BaseException) -> bool:
    return isinstance(error, (OperationalError, InterfaceError))
