"""When a wall time is, on days when the clocks change.

The rules are those of Paul Vixie's cron, as Debian's cron and cronie have them. cron(8) of Debian:

    "Special considerations exist when the clock is changed by less than 3 hours, for example at the beginning and end
    of daylight savings time. If the time has moved forwards, those jobs which would have run in the time that was
    skipped will be run soon after the change. Conversely, if the time has moved backwards by less than 3 hours, those
    jobs that fall into the repeated time will not be re-run. Only jobs that run at a particular time (not specified
    as @hourly, nor with '*' in the hour or minute specifier) are affected. Jobs which are specified with wildcards
    are run based on the new time immediately."
    (https://manpages.debian.org/cron.8; cronie's says the same under "Daylight Saving Time and other time changes":
    https://github.com/cronie-crond/cronie/blob/master/man/cron.8)

What "with '*'" means is in the source: `load_entry()` sets MIN_STAR or HR_STAR if the *first character* of the field
is a star, and `find_jobs()` treats an entry with either flag as a wildcard job
(https://github.com/cronie-crond/cronie/blob/master/src/entry.c and cron.c). So `*/15` is a wildcard, and a list or a
range, even `0-59`, is not. The main loop of cron.c keeps a `virtualTime` in minutes of the wall clock, which never
runs backwards: after a jump forward it runs the fixed-time jobs of each minute that was left out, after a jump
backward only wildcard jobs until the wall clock has caught up with it. A careful trial of the behaviour is
https://blog.healthchecks.io/2021/10/how-debian-cron-handles-dst-transitions/.

Without a daemon that wakes up each minute, the same can be said in one sentence each:

-   A **fixed** expression fires at wall time w at the first instant at which the zone's clock has reached w or gone
    past it. Most days that is the instant when it shows w. If w lies in a gap, it is the instant at which the gap
    ends. If w comes twice, it is the first time. Wall times that fall on one instant (all those of a gap) fire once.
-   Any other expression fires at each instant at which the clock shows one of its wall times: never in a gap, twice
    in a repeat. So `* * * * *` fires each minute, and `0 * * * *` 23, 24 or 25 times a day.

Where this differs from the daemon:

-   The three hours. The daemon takes a greater jump for a correction of the clock; here the change is one of the
    time zone, and known. When Samoa left out 30 December 2011, `0 12 * * *` fires for that day at the first instant of
    the 31st, and again at noon: a day's work is done late, not lost. (Since 1970 five zones have left out a day, and
    one, a station in Antarctica, has gone back by more than three hours.)
-   The daemon starts the jobs of a gap one by one, as soon as it gets to them; here they have one fire time, a whole
    instant that every pod computes alike.
-   cronie notices only changes of the daylight saving flag, so that it misses a change of the standard time. Every
    change of the offset counts here.

In numbers: between two changes of the offset, wall time minus offset is the instant. Let `seen` be the greatest wall
time that the clock has shown before a change. After it, a fixed expression goes on at `seen`: what lies between `seen`
and the first wall time that the clock shows now (the gap) belongs to the instant of the change; if the clock shows less
than `seen` now (the repeat), nothing fires until it has caught up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from zoneinfo import ZoneInfo

from django_reliable_jobs.schedules.zones import LAST, MAX_OFFSET, Change, changes, offset_at

# A repeat that began before the interval can reach into it for as long as two offsets can differ.
_LOOK_BACK = 2 * MAX_OFFSET


class Span(NamedTuple):
    """The wall times from `low` to `high`, both included, and their instants: all of them `at`, or wall - offset."""

    low: int
    high: int
    offset: int
    at: int | None = None

    def instant(self, wall: int) -> int:
        return wall - self.offset if self.at is None else self.at


def spans(zone: ZoneInfo, fixed: bool, after: int, until: int) -> Iterator[Span]:
    """Yield, in order of their instants, the spans of the wall times that belong to instants in (after, until]."""
    begin = after - _LOOK_BACK
    offset = offset_at(zone, begin)
    seen = begin + offset
    for change in [*changes(zone, begin, until), Change(until + 1, 0, 0)]:
        first, last = max(begin, after + 1), change.instant - 1
        if first <= last:
            shows = first + offset
            if fixed and first == begin and seen < shows:
                yield Span(seen, shows, offset, at=first)
                shows += 1
            yield Span(max(shows, seen) if fixed else shows, last + offset, offset)
        seen = max(seen, change.instant + offset)
        begin, offset = change.instant, change.after


def earliest_wall(instant: int) -> int:
    """Return a wall time before all those that can belong to instants later than `instant`."""
    return instant - 2 * MAX_OFFSET


def latest_wall(instant: int) -> int:
    """Return a wall time after all those that can belong to `instant` or an earlier one."""
    return min(instant, LAST) + 2 * MAX_OFFSET
