"""Which queues and priorities have work."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from django_reliable_jobs.store.statements import run


class Work(NamedTuple):
    """A (queue, priority) with claimable jobs; `due_in` seconds until its first one, negative while it waits.

    `since` is the first one's `run_at`. Before it there may be dead entries, which a claim need not walk once more.
    """

    queue: str
    priority: int
    due_in: float
    since: datetime


def without_a_trace(alias: str, queues: Iterable[str]) -> list[str]:
    """Those of the queues that no waiting job and no pause names."""
    return [row[0] for row in run(alias, "queues_named", {"queues": sorted(queues)})]


def discover(alias: str) -> list[Work]:
    """All pairs with claimable jobs in queues that are not paused."""
    rows = run(alias, "discover", {})
    return [Work(queue, priority, due_in, since.replace(tzinfo=UTC)) for queue, priority, due_in, since in rows]
