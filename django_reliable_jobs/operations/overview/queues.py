"""The figures of the queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from django_reliable_jobs.models import QueueState
from django_reliable_jobs.operations.overview.slices import Hour, hours
from django_reliable_jobs.operations.reading import read

#: Rows that are read at most: waiting ones of one queue and priority, of all of them together, and how many pairs of a
#: queue and a priority are looked at; running, FAILED and DEAD ones; queues that somebody paused.
MOST_EACH, LEAST_EACH, MOST_WAITING, PAIRS = 10_000, 250, 60_000, 200
MOST_RUNNING, MOST_FAILED, MOST_DEAD, MOST_STATES = 10_000, 10_000, 10_000, 1000


class Count(NamedTuple):
    """A number of rows; `capped`: there are at least so many, the rest was not counted."""

    value: int = 0
    capped: bool = False

    def __bool__(self) -> bool:
        return self.value > 0

    def plus(self, value: int, capped: bool) -> Count:
        return Count(self.value + value, self.capped or capped)


NONE = Count()


@dataclass(slots=True)
class QueueFigures:
    """One queue. `oldest` is how long the job that is due longest has waited, `last_death` how long ago the last one
    went DEAD, both in seconds; `lost` are running jobs whose lease has expired.
    """

    name: str
    paused: bool = False
    ready: Count = NONE
    failed: Count = NONE
    oldest: float | None = None
    running: Count = NONE
    lost: int = 0
    dead: Count = NONE
    dead_lately: int = 0
    last_death: float | None = None
    hour: Hour = field(default_factory=Hour)

    @property
    def idle(self) -> bool:
        """Nothing waits, runs, failed or is dead, and nothing ended in the last hour."""
        return self.hour.failure_rate is None and not (self.ready or self.running or self.failed or self.dead)

    @property
    def estimated(self) -> bool:
        """Some figure is a bound or an estimate."""
        counts = (self.ready, self.failed, self.running, self.dead)
        return self.hour.estimated or self.hour.failed_capped or any(each.capped for each in counts)


class _ByName(defaultdict[str, QueueFigures]):
    def __missing__(self, name: str) -> QueueFigures:
        self[name] = QueueFigures(name)
        return self[name]


def queue_figures(alias: str, passed: float, names: Iterable[str]) -> tuple[list[QueueFigures], dict[UUID, int]]:
    """The queues by name, and how many leases each worker holds."""
    found = _ByName()
    for name in names:
        found[name].hour = Hour()
    _waiting(alias, found)
    leases: dict[UUID, int] = defaultdict(int)
    rows = read(alias, "overview_running", {"most": MOST_RUNNING + 1})
    capped = sum(row[2] for row in rows) > MOST_RUNNING
    for queue, worker, count, lost in rows:
        found[queue].running = found[queue].running.plus(count, capped)
        found[queue].lost += lost
        leases[worker] += count
    rows = read(alias, "overview_failed", {"most": MOST_FAILED + 1})
    capped = sum(row[1] for row in rows) > MOST_FAILED
    for queue, count in rows:
        found[queue].failed = Count(count, capped)
    rows = read(alias, "overview_dead", {"most": MOST_DEAD + 1})
    capped = sum(row[1] for row in rows) > MOST_DEAD
    for queue, count, lately, last in rows:
        each = found[queue]
        each.dead, each.dead_lately, each.last_death = Count(count, capped), lately, last
    for queue, hour in hours(alias, passed).items():
        found[queue].hour = hour
    for queue, paused in QueueState.objects.using(alias).values_list("queue", "paused")[:MOST_STATES]:
        found[queue].paused = paused
    return [found[name] for name in sorted(found)], dict(leases)


def _waiting(alias: str, found: _ByName) -> None:
    params = {"pairs": PAIRS, "most_each": MOST_EACH, "least_each": LEAST_EACH, "most": MOST_WAITING}
    rows = read(alias, "overview_waiting", params)
    for queue, oldest, ready, capped in rows:
        each = found[queue]
        # There may be more pairs than were looked at.
        each.ready = each.ready.plus(ready, capped or len(rows) >= PAIRS)
        if ready:
            each.oldest = max(oldest, each.oldest or 0.0)
