"""Schedules as a worker finds them: which are due, and in how many seconds the next one is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django_reliable_jobs.connections.statement_text import Row
from django_reliable_jobs.schedules import RULES, FiringRules
from django_reliable_jobs.store.statements import run

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Of how many due schedules, the oldest, a worker takes some.
WITHIN = 1000
#: Unfinished jobs of one schedule that are looked at.
MOST_OPEN = 1000


@dataclass(frozen=True, slots=True)
class Due:
    """A schedule's row as the worker found it, at the database's `now`; moments are seconds since 1970.

    They become datetimes when they are asked for: ValueError or OverflowError then is for what no host can represent.
    """

    id: int
    name: str
    job_name: str
    expression: str
    timezone: str
    args: str
    kwargs: str
    source: str
    misfire: str
    misfire_grace: float
    catch_up_window: float
    catch_up_limit: int
    overlap: str
    jitter: float
    starts_epoch: Decimal | None
    ends_epoch: Decimal | None
    pause_after_failures: int | None
    version: int
    fired_through_epoch: Decimal
    waiting_for_epoch: Decimal | None
    #: The unfinished jobs of its earlier fires (unless `overlap` is `allow`), and how many of them run.
    unfinished: tuple[int, ...]
    running: int
    #: DEAD ones of its last `pause_after_failures` finished jobs.
    dead_lately: int
    now: datetime

    @property
    def fired_through(self) -> datetime:
        return moment(self.fired_through_epoch)

    @property
    def waiting_for(self) -> datetime | None:
        return None if self.waiting_for_epoch is None else moment(self.waiting_for_epoch)

    @property
    def starts_at(self) -> datetime | None:
        return None if self.starts_epoch is None else moment(self.starts_epoch)

    @property
    def ends_at(self) -> datetime | None:
        return None if self.ends_epoch is None else moment(self.ends_epoch)

    def rules(self) -> FiringRules:
        """Raises what is wrong with the row: ScheduleError, ValueError, TypeError, OverflowError."""
        return FiringRules(**{name: getattr(self, name) for name in RULES})


@dataclass(frozen=True, slots=True)
class DueSchedules:
    """What a look brought: some of the `count` due schedules, and in how many seconds the next is due (None: never)."""

    due: list[Due]
    count: int
    next_in: float | None


def look(alias: str, known: Sequence[str], batch: int, aside: Sequence[tuple[int, int]] = ()) -> DueSchedules:
    """What is due of the schedules whose jobs are `known`: up to `batch`, not the same for every worker.

    `aside`: (id, version) of those that the caller leaves alone just now, so that they do not stand in others' way.
    """
    params = {
        "known": list(known), "within": WITHIN, "batch": batch,
        "most": MOST_OPEN, "aside_ids": [id_ for id_, _ in aside], "aside_versions": [version for _, version in aside],
    }  # fmt: skip
    rows = run(alias, "schedules/due", params)
    count, next_in, now = rows[0][:3]
    return DueSchedules([_due(row[3:], moment(now)) for row in rows if row[3] is not None], count, next_in)


def find(alias: str, name: str) -> Due | None:
    """The schedule of this name, due or not; what is unfinished is not asked for."""
    rows = run(alias, "schedules/find", {"name": name})
    return _due((*rows[0][1:], None, None, None), moment(rows[0][0])) if rows else None


def now(alias: str) -> datetime:
    """By the database's clock."""
    return moment(run(alias, "schedules/now", {})[0][0])


def _due(row: Row, now: datetime) -> Due:
    unfinished, running, dead = row[-3:]
    columns: Row = (*row[:-3], tuple(unfinished or ()), running or 0, dead or 0, now)
    return Due(*columns)


def moment(epoch: Decimal) -> datetime:
    """From seconds since 1970, to the microsecond."""
    return _EPOCH + timedelta(microseconds=int(epoch * 1_000_000))


def refuse(alias: str, due: Due, worker: UUID, problem: str, alive: float) -> bool | None:
    """This worker cannot compute it. True: nor can anybody else who was seen within `alive` seconds, so it is marked broken.

    None: somebody has the row locked, or has changed or marked it meanwhile.
    """
    params = {"id": due.id, "version": due.version, "worker": worker, "problem": problem, "alive": alive}
    rows = run(alias, "schedules/refuse", params)
    return rows[0][0] if rows else None


def broken(alias: str, known: Sequence[str]) -> list[Due]:
    """Some of people's schedules that are marked broken and whose jobs are `known`."""
    found = (find(alias, name) for (name,) in run(alias, "schedules/broken_ones", {"known": list(known)}))
    return [due for due in found if due is not None]


def mend(alias: str, due: Due) -> bool:
    """It can be computed after all; False when somebody has changed it meanwhile."""
    return bool(run(alias, "schedules/mend", {"id": due.id, "version": due.version}))


def unknown_jobs(alias: str, known: Sequence[str], overdue: float) -> list[str]:
    """Names that are not `known` of jobs whose schedules are overdue by more than so many seconds."""
    return [row[0] for row in run(alias, "schedules/unknown", {"known": list(known), "overdue": overdue})]
