"""The figures of the overview: queues, workers and schedules, at a cost that does not depend on how many rows there are.

Nothing is counted to its end: every figure is read from an index up to a bound, and says so when it was reached (`Count`).
All times are by the database's clock. One call is about ten statements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from uuid import UUID

from django_reliable_jobs import conf
from django_reliable_jobs.operations.overview.queues import QueueFigures, queue_figures
from django_reliable_jobs.operations.overview.schedules import ScheduleFigures, schedule_figures
from django_reliable_jobs.operations.overview.slices import SLICES, WIDTH
from django_reliable_jobs.operations.reading import read

#: Queues that are shown, workers and schedules that are read.
MOST_QUEUES, MOST_WORKERS, MOST_SCHEDULES = 100, 200, 50


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """A worker's row. `unseen` and `age` are in seconds; `running` are the leases that it holds, `busy` the slots."""

    id: UUID
    host: str
    pid: int
    version: str
    queues: str
    slots: int
    busy: int
    stopping: bool
    #: Why it cannot do all its work, in words; empty while it can.
    problem: str
    last_seen: datetime
    unseen: float
    age: float
    #: It was not seen for a whole lease: its jobs are about to be taken over, or have been.
    stale: bool
    running: int

    def serves(self, queue: str) -> bool:
        """Whether it claims from the queue, as far as its row says."""
        only, _, exclude = self.queues.partition(" but ")
        if queue in exclude.split(", "):
            return False
        if only in ("", "all queues") or len(self.queues) >= 500:  # what is longer was cut
            return True
        return queue in {each.partition(":")[0] for each in only.split(", ")}


@dataclass(frozen=True)
class Overview:
    """The whole picture at the moment `now`; `lease` and `slice_seconds` are in seconds."""

    now: datetime
    queues: list[QueueFigures]
    workers: list[WorkerFigures]
    schedules: list[ScheduleFigures]
    lease: float
    more_queues: bool
    more_workers: bool
    more_schedules: bool
    slice_seconds: float = WIDTH
    slices: int = SLICES

    @cached_property
    def since(self) -> datetime:
        """The start of the first slice."""
        passed = self.now.timestamp() % self.slice_seconds
        return self.now - timedelta(seconds=passed + (self.slices - 1) * self.slice_seconds)

    @cached_property
    def at_work(self) -> list[WorkerFigures]:
        """The workers that claim jobs: seen lately, and not stopping."""
        return [worker for worker in self.workers if not worker.stale and not worker.stopping]


def overview(
    alias: str | None = None, *, queues: Iterable[str] = (), workers: bool = True, schedules: bool = True
) -> Overview:
    """Read the figures. `queues` are names to show whether they have jobs or not."""
    alias = alias or conf.current().database
    lease = conf.current().lease
    now, passed = read(alias, "overview_clock", {"width": WIDTH})[0]
    figures, running = queue_figures(alias, passed, queues)
    rows = read(alias, "overview_workers", {"most": MOST_WORKERS + 1, "lease": lease}) if workers else []
    planned = schedule_figures(alias, MOST_SCHEDULES + 1) if schedules else []
    fleet = [WorkerFigures(*(*row, row[10] > lease, running.get(row[0], 0))) for row in rows]
    return Overview(
        now=now,
        # Where there are too many, those with something to tell.
        queues=sorted(sorted(figures, key=lambda each: each.idle)[:MOST_QUEUES], key=lambda each: each.name),
        workers=fleet[:MOST_WORKERS],
        schedules=planned[:MOST_SCHEDULES],
        lease=lease,
        more_queues=len(figures) > MOST_QUEUES,
        more_workers=len(fleet) > MOST_WORKERS,
        more_schedules=len(planned) > MOST_SCHEDULES,
    )
