"""Which queues and priorities have work."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from django_reliable_jobs.store.statements import run, run_positional


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


class Look(NamedTuple):
    """A part of the pairs, and behind which pair the next part begins; None: that was all."""

    work: list[Work]
    end: tuple[str, int] | None = None


#: Behind which "pair" the first part begins.
START_OF_LOOK = ("", 32_767)
#: Pairs in a part: it takes some 5 ms.
PART = 500


def look(alias: str, after: tuple[str, int] = START_OF_LOOK, most: int = PART) -> Look:
    """Up to `most` pairs with claimable jobs, those of paused queues left out."""
    rows = run_positional(alias, "discover", {"after_queue": after[0], "after_priority": after[1], "most": most})
    found = [
        Work(queue, priority, due, since.replace(tzinfo=UTC))
        for queue, priority, due, since, paused in rows
        if not paused
    ]
    return Look(found, (rows[-1][0], rows[-1][1]) if len(rows) >= most else None)


def discover(alias: str) -> list[Work]:
    """All pairs with claimable jobs in queues that are not paused."""
    found, end = look(alias)
    while end is not None:
        more, end = look(alias, end)
        found += more
    return found
