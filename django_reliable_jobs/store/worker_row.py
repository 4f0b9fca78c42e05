"""The worker's own row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple
from uuid import UUID

from django_reliable_jobs.store.statements import change, run


@dataclass(slots=True)
class WorkerState:
    """What a worker says of itself."""

    worker: UUID
    host: str
    pid: int
    version: str
    queues: str
    slots: int
    release: str = ""
    names_digest: str = ""
    problem: str = ""
    busy: int = 0
    stopping: bool = False


class Seen(NamedTuple):
    """`free_elsewhere`: free slots of the other workers; `clock`: the database's, in seconds since 1970."""

    free_elsewhere: int
    clock: float


def seen(alias: str, presence: WorkerState, alive: float) -> Seen:
    """Write the row; what is known of the workers that were seen within `alive` seconds."""
    return Seen(*run(alias, "workers/seen", asdict(presence) | {"alive": alive})[0])


def gone(alias: str, workers: Sequence[UUID] = (), older_than: float = 3600.0) -> int:
    """Delete the rows of these workers, and of all that were not seen for `older_than` seconds; how many."""
    return change(alias, "workers/gone", {"workers": list(workers), "age": older_than})
