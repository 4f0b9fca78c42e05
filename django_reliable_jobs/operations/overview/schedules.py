"""The figures of the schedules, and what became of their last runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby

from django_reliable_jobs.models import CronRun, JobStatus
from django_reliable_jobs.operations.reading import read

#: Runs of a schedule that are shown.
RUNS = 30


class RunState(StrEnum):
    """What became of a run, for somebody who looks at many."""

    DONE = "done"
    UNFINISHED = "unfinished"
    FAILING = "failing"  # its job failed and will be tried again
    DEAD = "dead"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    ERROR = "error"  # there is no job, because of an error
    GONE = "gone"  # the job's row is not there, and what it ended with is not known


_OF_STATUS: dict[str, RunState] = {
    JobStatus.QUEUED: RunState.UNFINISHED,
    JobStatus.RUNNING: RunState.UNFINISHED,
    JobStatus.FAILED: RunState.FAILING,
    JobStatus.DONE: RunState.DONE,
    JobStatus.DEAD: RunState.DEAD,
    JobStatus.CANCELLED: RunState.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class RunFigures:
    """A run; `status` is its job's, empty where there is none."""

    id: int
    scheduled_for: datetime
    fired_at: datetime
    outcome: str
    skipped_count: int
    status: str

    @property
    def state(self) -> RunState:
        if self.outcome == CronRun.Outcome.ERROR:
            return RunState.ERROR
        if self.outcome != CronRun.Outcome.ENQUEUED:
            return RunState.SKIPPED
        return _OF_STATUS.get(self.status, RunState.GONE)


@dataclass(frozen=True, slots=True)
class ScheduleFigures:
    """A schedule with its last runs, the oldest first. `overdue`: seconds since its fire was due; negative: until it is."""

    id: int
    name: str
    job_name: str
    expression: str
    timezone: str
    source: str
    paused: bool
    broken: str
    next_fire_at: datetime | None
    overdue: float | None
    runs: tuple[RunFigures, ...]

    @property
    def last_run(self) -> RunFigures | None:
        return self.runs[-1] if self.runs else None


def schedule_figures(alias: str, most: int) -> list[ScheduleFigures]:
    """Up to `most` schedules: those that are broken or overdue first, then by name."""
    rows = read(alias, "overview_schedules", {"most": most})
    runs = read(alias, "overview_runs", {"names": [row[1] for row in rows], "runs": RUNS}) if rows else []
    by_name = {
        name: tuple(RunFigures(*row[1:]) for row in group)[::-1] for name, group in groupby(runs, lambda row: row[0])
    }
    return [ScheduleFigures(*(*row, by_name.get(row[1], ()))) for row in rows]
