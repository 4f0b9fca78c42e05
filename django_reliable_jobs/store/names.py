"""Job names that no living worker knows: met, forgotten, judged (protocol 28).

A worker lives that was seen within `alive` seconds. One whose row names no digest (an older version of this package), or a
digest whose names are not written down yet, may know any name: nothing is judged while it lives.

What can interleave. A worker that knows the name starts while its rows become DEAD: `names/dead.sql` asks anew for each batch,
so that at most one batch is judged after that worker's first heartbeat. A worker claims a row meanwhile: whoever locks it
first has it. Several workers judge at once: one has the names' rows, the others find nothing to do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from django_reliable_jobs.definitions.registry import NamesKnown
from django_reliable_jobs.store.statements import change, run

#: Seconds without a reader after which a digest's names are taken away.
KEEP_DIGEST = 3600.0


class Position(NamedTuple):
    """A place in the claim's order; `run_at` as PostgreSQL writes it, since a row may hold what no `datetime` can."""

    queue: str
    priority: int
    run_at: str
    job_id: int


BEGINNING = Position("", 32767, "-infinity", 0)


def announce(alias: str, known: NamesKnown) -> None:
    """Write down what a digest stands for, once for all workers that have it."""
    if not run(alias, "names/seen", {"digest": known.digest})[0][0]:
        storable = [name for name in known.names if _is_storable(name)]
        change(alias, "names/known", {"digest": known.digest, "names": json.dumps(storable)})


def _is_storable(name: str) -> bool:
    try:
        return "\x00" not in name and bool(name.encode())
    except UnicodeEncodeError:
        return False


def forget(alias: str, alive: float) -> None:
    """A name that a living worker knows is not unknown any more."""
    change(alias, "names/forget", {"alive": alive})


def meet(alias: str, names: Sequence[str], alive: float) -> None:
    """From now on these are unknown, unless they are already or a living worker knows them."""
    if names:
        change(alias, "names/meet", {"names": list(names), "alive": alive})


def judged(alias: str, after: float, alive: float) -> list[str]:
    """The names that no living worker has known for `after` seconds."""
    return [row[0] for row in run(alias, "names/judged", {"after": after, "alive": alive})]


def walk(alias: str, names: Sequence[str], since: Position, most: int) -> tuple[list[int], Position | None]:
    """Look at up to `most` waiting jobs behind `since`: the ids of those with one of the names, and where to go on."""
    rows = run(alias, "names/walk", {"names": list(names), "most": most} | since._asdict())
    ids, count, queue, priority, run_at, job_id = rows[0]
    return list(ids or ()), Position(queue, priority, run_at, job_id) if count >= most else None


def dead(alias: str, ids: Sequence[int], after: float, alive: float) -> list[str]:
    """Make these jobs DEAD whose names are (still) judged; the name of each."""
    return [row[0] for row in run(alias, "names/dead", {"job_ids": list(ids), "after": after, "alive": alive})]


def done(alias: str, names: Sequence[str]) -> None:
    """No job with these names waits any more: a later one starts anew."""
    change(alias, "names/done", {"names": list(names)})


def prune(alias: str) -> int:
    """Take away digests that no worker has."""
    return change(alias, "names/prune", {"age": KEEP_DIGEST})
