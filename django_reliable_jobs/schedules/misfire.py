"""Which fire times that are due get a job, and which are recorded as skipped.

A fire time is **missed** once it is `misfire_grace` late: no worker was there. Before that it is merely late, and gets
its job whatever the policy says. Of the missed ones `skip` takes none, `all` those that are not older than
`catch_up_window`, and `latest` the newest of those, but only if nothing that is late is due as well: the newest run is
the one that counts, and it is coming. Of what is left the newest `catch_up_limit` are taken.

So the fire times that are taken are always the newest of those that are due, and those that are not taken are one
stretch before them, which is one row however many they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_reliable_jobs.schedules.rules import FiringRules, Misfire
from django_reliable_jobs.schedules.timetable import Timetable


@dataclass(frozen=True)
class Stretch:
    """Fire times in a row: the first, the last, and how many there are, these two included."""

    first: datetime
    last: datetime
    count: int


@dataclass(frozen=True)
class Plan:
    """What to do about the fire times that are due. Moments are in UTC, but for a `fired_through` that stays as it is.

    enqueue: the fire times that get a job, rising. skipped: the missed ones before them that get none.
    fired_through: the last fire time that the plan deals with; what was given if there is none.
    next_fire: the first fire time later than that, which is later than now as well; None if the schedule has ended.
    """

    enqueue: tuple[datetime, ...]
    skipped: Stretch | None
    fired_through: datetime
    next_fire: datetime | None


def plan(timetable: Timetable, rules: FiringRules, fired_through: datetime, now: datetime) -> Plan:
    """Decide about the fire times in (fired_through, now].

    The time that this takes depends on `catch_up_limit`, hardly on how long ago `fired_through` is. A `now` that is
    earlier than `fired_through` (a clock was set back) leaves everything as it is.
    """
    after, until = rules.interval(fired_through, now)
    taken = _taken(timetable, rules, after, until, now)
    skipped = _skipped(timetable, after, until, taken)
    last = taken[-1] if taken else skipped.last if skipped else fired_through
    return Plan(tuple(taken), skipped, last, next_fire(timetable, rules, last))


def next_fire(timetable: Timetable, rules: FiringRules, after: datetime) -> datetime | None:
    """Return the schedule's first fire time later than `after`, from its `starts_at` on; None after its `ends_at`."""
    after, _ = rules.interval(after, after)
    found = timetable.next_after(after)
    return None if found is None or (rules.ends_at is not None and found > rules.ends_at) else found


def fires(timetable: Timetable, rules: FiringRules, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the schedule's fire times in (after, until], missed or not: for a backfill or a preview."""
    return timetable.between(*rules.interval(after, until))


def _taken(timetable: Timetable, rules: FiringRules, after: datetime, until: datetime, now: datetime) -> list[datetime]:
    missed_until = now - timedelta(seconds=rules.misfire_grace)
    # What is exactly as old as the window belongs to it.
    window_from = min(now - timedelta(seconds=rules.catch_up_window) - timedelta.resolution, missed_until)
    if rules.misfire is Misfire.ALL:
        return timetable.newest(max(after, window_from), until, rules.catch_up_limit)
    late = timetable.newest(max(after, missed_until), until, rules.catch_up_limit)
    if late or rules.misfire is Misfire.SKIP:
        return late
    return timetable.newest(max(after, window_from), until, 1)


def _skipped(timetable: Timetable, after: datetime, until: datetime, taken: list[datetime]) -> Stretch | None:
    if taken:
        until = taken[0] - timedelta.resolution
    first = next(timetable.between(after, until), None)
    if first is None:
        return None
    return Stretch(first, timetable.newest(after, until, 1)[0], timetable.count(after, until))
