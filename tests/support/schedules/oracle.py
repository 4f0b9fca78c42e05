"""Fire times by brute force: a clock that ticks through every minute, as a cron daemon does.

Nothing of the package is used here. The fields are read by a reader that knows only what these tests write, and the
rules for changed clocks are those of the daemon's loop: a virtual time that never goes back, and fixed expressions
that run for each minute of it.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import TypeVar
from zoneinfo import ZoneInfo, available_timezones

Moment = TypeVar("Moment", datetime, date)

DAY = 86_400
MINUTE = 60

#: No clock has gone back by more than seven hours: what it showed in half a day is all that can come again.
WARM_UP = DAY // 2


def utc(text: str) -> datetime:
    """Return a moment in UTC that is written as `2026-08-01`, `2026-08-01T04:30` or with seconds."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def utcs(*texts: str) -> list[datetime]:
    return [utc(text) for text in texts]


def stamp(moment: datetime) -> int:
    return int(moment.timestamp())


def values(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        if first == "*":
            numbers = range(low, high + 1)
        elif last:
            numbers = range(int(first), int(last) + 1)
        else:
            numbers = range(int(first), (high if step else int(first)) + 1)
        found.update(numbers[:: int(step or 1)])
    return found


class Oracle:
    """What a five-field expression of numbers, ranges, steps, lists and `L` in UTC or a zone means, by definition."""

    def __init__(self, expression: str) -> None:
        minute, hour, day, month, weekday = expression.split()
        self.fixed = minute[0] != "*" and hour[0] != "*"
        self.minutes, self.hours = values(minute, 0, 59), values(hour, 0, 23)
        self.last_day = "L" in day.split(",")
        plain = ",".join(item for item in day.split(",") if item != "L")
        self.days = values(plain, 1, 31) if plain else set()
        self.months = values(month, 1, 12)
        self.weekdays = {number % 7 for number in values(weekday, 0, 6)}
        self.both = day[0] == "*" or weekday[0] == "*"
        self.names_day: Callable[[date], bool] = cache(self._names_day)

    def _names_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        last = calendar.monthrange(day.year, day.month)[1]
        of_month = day.day in self.days or (self.last_day and day.day == last)
        of_week = (day.weekday() + 1) % 7 in self.weekdays
        return (of_month and of_week) if self.both else (of_month or of_week)

    def names(self, wall: datetime) -> bool:
        """Return whether the fields match what the clock on the wall shows."""
        return wall.hour in self.hours and wall.minute in self.minutes and self.names_day(wall.date())

    def fires(self, shown: dict[int, datetime], after: int, until: int) -> list[int]:
        """Return the fire times in (after, until]; `shown` comes from `clock`, for this interval or a longer one."""
        found = []
        virtual: datetime | None = None
        for instant, wall in shown.items():
            if self.fixed:
                if virtual is None:
                    virtual = wall - timedelta(minutes=1)
                fire = False
                while virtual < wall:
                    virtual += timedelta(minutes=1)
                    fire = fire or self.names(virtual)
            else:
                fire = self.names(wall)
            if fire and after < instant <= until:
                found.append(instant)
        return found


@cache
def clock(zone: ZoneInfo, after: int, until: int) -> dict[int, datetime]:
    """Return what the clock on the wall shows in each minute, from `WARM_UP` before `after` to `until`."""
    start = (after - WARM_UP) // MINUTE * MINUTE
    return {
        instant: datetime.fromtimestamp(instant, zone).replace(tzinfo=None, fold=0)
        for instant in range(start, until + 1, MINUTE)
    }


@cache
def change_times(zone: ZoneInfo, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return when the zone's offset changes in (start, end], and to what (seconds), found by halving half days."""

    def offset(instant: int) -> int:
        delta = datetime.fromtimestamp(instant, zone).utcoffset()
        assert delta is not None
        return int(delta.total_seconds())

    found = []
    for left in range(start, end, DAY // 2):
        right = min(left + DAY // 2, end)
        before, after = offset(left), offset(right)
        while before != after and right - left > 1:
            middle = (left + right) // 2
            left, right = (middle, right) if offset(middle) == before else (left, middle)
        if before != after:
            found.append((right, after))
    return tuple(found)


@cache
def zone_names() -> tuple[str, ...]:
    return tuple(sorted(available_timezones()))


@cache
def kinds_of_zones(start: int, end: int) -> dict[str, tuple[str, ...]]:
    """Return all zones, those together whose clocks show the same from `start` to `end`, under the first one's name."""
    kinds: dict[object, list[str]] = {}
    for name in zone_names():
        zone = ZoneInfo(name)
        first = datetime.fromtimestamp(start, zone).utcoffset()
        kinds.setdefault((first, change_times(zone, start, end)), []).append(name)
    return {names[0]: tuple(names) for names in kinds.values()}


def pairs(row: list[Moment]) -> Iterator[tuple[Moment, Moment]]:
    return pairwise(row)
