"""Reap, expire and release: jobs whose owner is gone, that came too late, or that nobody holds after a lost answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django_reliable_jobs import conf
from django_reliable_jobs.store.statements import run
from django_reliable_jobs.values.backoff import Backoff
from django_reliable_jobs.values.states import JobStatus

FOR_EVER = 1e10  # seconds, with which PostgreSQL still can calculate


class Reaped(NamedTuple):
    """A job that was taken from its lost owner."""

    id: int
    name: str
    queue: str
    priority: int
    status: str
    attempts: int
    worker: UUID

    @property
    def queued(self) -> bool:
        return self.status == JobStatus.QUEUED


def reap(
    alias: str, backoff: Backoff, batch: int, dead_workers: Sequence[UUID] = (), *, reach: float = math.inf,
    latest: float = math.inf,
) -> list[Reaped]:  # fmt: skip
    """Take back up to `batch` leases: those that ran out in the last `reach` seconds, and all of `dead_workers` (protocol 7).

    If it is later than `latest` (seconds since 1970, by the database's clock), only those of `dead_workers`.
    """
    params = {
        "batch": batch,
        "steps": _steps_to_the_cap(backoff),
        "dead_workers": list(dead_workers),
        "reach": min(reach, FOR_EVER),
        "latest": latest,
        "base": backoff.base,
        "factor": backoff.factor,
        "cap": backoff.cap,
        "lease": conf.current().lease,
    }
    return [Reaped(*row) for row in run(alias, "reap", params)]


def _steps_to_the_cap(backoff: Backoff) -> float:
    """The exponent at which the delay is the cap: a larger one would only overflow, and with it every reap."""
    if backoff.factor == 1 or backoff.base < 1e-6:
        return 0.0
    return math.log(backoff.cap / backoff.base) / math.log(backoff.factor)


def release_unheld(alias: str, worker: UUID, tokens: Sequence[int]) -> list[int]:
    """Hand back RUNNING rows that bear this worker's id and whose token it does not hold; no attempt is used."""
    return [row[0] for row in run(alias, "release", {"worker": worker, "tokens": list(tokens)})]


def expire(alias: str, batch: int) -> int:
    """Cancel up to `batch` jobs whose `expires_at` has passed before they started; how many."""
    return len(run(alias, "expire", {"batch": batch}))
