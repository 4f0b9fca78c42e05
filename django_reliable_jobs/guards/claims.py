"""Claims: take a key and keep it. Nothing is renewed and nothing released."""

from __future__ import annotations

from asgiref.sync import sync_to_async

from django_reliable_jobs.errors import GuardUnavailable
from django_reliable_jobs.guards.guard import Guard, complaints
from django_reliable_jobs.guards.periods import Period, as_period, end_of_period
from django_reliable_jobs.values.durations import Duration, optional_seconds
from django_reliable_jobs.values.elapsed import elapsed


def claim_period(key: str, period: Period, *, using: str | None = None) -> bool:
    """Whether this caller is the first one in the present period.

    Every other caller gets False until the period ends: other pods, restarts, a run at start-up. Periods are aligned to
    1970-01-01 00:00 UTC, as in `@every`, and the store's clock says which one it is: a host's clock has no say. `period`
    is in whole seconds, or a `timedelta`, a cron expression (in TIME_ZONE) or a timetable with a zone of its own.

    On the database store, inside `atomic()`, the claim is part of the transaction: a rollback frees the period, and a
    rival waits for the commit.

    If the store does not answer within `GUARDS["TIMEOUT"]` the answer is False, so that a tick is skipped rather than run
    everywhere; this is logged once a minute. Only inside `atomic()` on the database store, where the transaction is
    lost with it, is it GuardUnavailable.
    """
    timetable = as_period(period)
    guard = Guard.of("period", key, using)
    try:
        while True:
            asked = elapsed()
            now = guard.now()
            end = end_of_period(timetable, now)
            if guard.acquire(None, until=end) is not None:
                return True
            if end is None or elapsed() - asked < end - now:
                return False
            # The period may have ended before the claim arrived: this host was asleep in between. Ask for the next one.
    except GuardUnavailable as error:
        complaints.add(guard, error)
        if guard.joins:
            raise
        return False


def claim_once(key: str, ttl: Duration | None = None, *, using: str | None = None) -> bool:
    """Whether this caller is the first one ever to claim this key, or the first one in `ttl` seconds.

    One business event has one key: `claim_once(f"{ctx.idempotency_key}:{record.pk}")`. On the database store, inside
    `atomic()`, the claim is part of the transaction: the claim and the effect commit or vanish together, and a rival
    waits for that. Anywhere else a crash between the claim and the effect loses the effect.

    Without a `ttl` the claim stays for good. Raises GuardUnavailable if the store does not answer within
    `GUARDS["TIMEOUT"]`, or if a rival's transaction has not come to its end by then: whether the key is claimed is not
    known; inside `atomic()` the transaction is lost.
    """
    seconds = optional_seconds(ttl, "ttl", minimum=0.001)
    guard = Guard.of("once", key, using)
    try:
        return guard.acquire(seconds) is not None
    except GuardUnavailable as error:
        complaints.add(guard, error)
        raise


async def aclaim_period(key: str, period: Period, *, using: str | None = None) -> bool:
    """`claim_period` for coroutines."""
    return await sync_to_async(claim_period)(key, period, using=using)


async def aclaim_once(key: str, ttl: Duration | None = None, *, using: str | None = None) -> bool:
    """`claim_once` for coroutines."""
    return await sync_to_async(claim_once)(key, ttl, using=using)
