"""Which queues and priorities have work."""

from __future__ import annotations

from typing import NamedTuple

from django_reliable_jobs.store.statements import run


class Work(NamedTuple):
    """A (queue, priority) with claimable jobs; `due_in` seconds until its first one, negative while it waits."""

    queue: str
    priority: int
    due_in: float


def discover(alias: str) -> list[Work]:
    """All pairs with claimable jobs in queues that are not paused."""
    return [Work(*row) for row in run(alias, "discover", {})]
