"""Settle one outcome inside the handler's own transaction (an atomic job)."""

from __future__ import annotations

from uuid import UUID

from django_reliable_jobs.store.exchange import Settlement
from django_reliable_jobs.store.statements import change, run


def settle(alias: str, worker: UUID, offer: Settlement, idle: float = 15.0) -> bool:
    """Whether the row was written; False means that the lease is lost and the transaction has to be rolled back.

    The server ends the transaction if its commit does not come within `idle` seconds.
    """
    lease, outcome, progress = offer
    params = {
        "job_id": lease.job_id,
        "token": lease.token,
        "worker": worker,
        "status": outcome.status.value,
        "reason": outcome.reason,
        "delay": outcome.delay,
        "give_back": int(outcome.give_back),
        "result": outcome.result,
        "progress": progress,
        "idle": max(1, int(idle * 1000)),
    }
    if not run(alias, "settle_atomic", params):
        return False
    if (error := outcome.error) is not None:
        change(
            alias,
            "record_attempt",
            {"job_id": lease.job_id, "attempt": lease.attempt, "worker": worker, "kind": error.kind,
             "message": error.message, "traceback": error.traceback},
        )  # fmt: skip
    return True


def bound_idle(alias: str, limit: float) -> None:
    """End the caller's transaction on the server if it is idle for `limit` seconds; for this transaction only."""
    run(alias, "bound_idle", {"milliseconds": max(1, min(int(limit * 1000), 2**31 - 1))})
