"""The times that a cron expression names, on a calendar and a clock that know no time zone.

A wall time is a number of seconds since 1970-01-01 00:00 on the clock on the wall. Days are looked at one by one and
the times of a day by arithmetic, so that "how many in 400 days?" takes 400 steps and not 576,000.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final

DAY: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()

#: The days that may be asked for, as days since 1970-01-01. The calendar of `datetime` has some more at both ends,
#: so that a time zone's offset never leads out of it.
FIRST_DAY: Final = date(1, 1, 4).toordinal() - _EPOCH
LAST_DAY: Final = date(9999, 12, 28).toordinal() - _EPOCH


@dataclass(frozen=True)
class WallPattern:
    """The expanded fields. `hours` and `minutes` are sorted; weekdays count from 0, Sunday."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    last_day: bool  # the last day of the month matches, whichever it is
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool  # day-of-month or day-of-week is enough; otherwise both must match

    def ascending(self, low: int, high: int) -> Iterator[int]:
        """Yield the wall times from `low` to `high`, both included, rising."""
        day, last = low // DAY, high // DAY
        while (found := self._day_from(day, last)) is not None:
            start, stop = self._ranks(found, low, high)
            yield from (found * DAY + self._time(rank) for rank in range(start, stop))
            day = found + 1

    def descending(self, low: int, high: int) -> Iterator[int]:
        """Yield the wall times from `high` down to `low`, both included."""
        day, first = high // DAY, low // DAY
        while (found := self._day_down_from(day, first)) is not None:
            start, stop = self._ranks(found, low, high)
            yield from (found * DAY + self._time(rank) for rank in range(stop - 1, start - 1, -1))
            day = found - 1

    def count(self, low: int, high: int) -> int:
        """Return how many wall times there are from `low` to `high`, both included."""
        total, day, last = 0, low // DAY, high // DAY
        while (found := self._day_from(day, last)) is not None:
            start, stop = self._ranks(found, low, high)
            total += stop - start
            day = found + 1
        return total

    def any(self, low: int, high: int) -> bool:
        """Return whether there is a wall time from `low` to `high`, both included."""
        return next(self.ascending(low, high), None) is not None

    def names_day(self, day: date) -> bool:
        """Return whether the month, day-of-month and day-of-week fields match."""
        if day.month not in self.months:
            return False
        of_month = day.day in self.days or (
            self.last_day and day.day >= 28 and day.day == monthrange(day.year, day.month)[1]
        )
        of_week = day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week

    def _ranks(self, day: int, low: int, high: int) -> tuple[int, int]:
        """Return the slice of the times of `day` that lies from `low` to `high`."""
        start = 0 if low <= day * DAY else self._rank(low - day * DAY)
        whole = high >= day * DAY + DAY - 1
        stop = len(self.hours) * len(self.minutes) if whole else self._rank(high - day * DAY + 1)
        return start, max(start, stop)

    def _rank(self, second: int) -> int:
        """Return how many times of a day come before `second` of the day (0 to 86,400)."""
        hour, rest = divmod(second, 3600)
        index = bisect_left(self.hours, hour)
        rank = index * len(self.minutes)
        if index < len(self.hours) and self.hours[index] == hour:
            rank += bisect_left(self.minutes, -(-rest // 60))
        return rank

    def _time(self, rank: int) -> int:
        hour, minute = divmod(rank, len(self.minutes))
        return self.hours[hour] * 3600 + self.minutes[minute] * 60

    def _day_from(self, day: int, last: int) -> int | None:
        day, last = max(day, FIRST_DAY), min(last, LAST_DAY)
        while day <= last:
            found = date.fromordinal(day + _EPOCH)
            if found.month not in self.months:
                day += monthrange(found.year, found.month)[1] - found.day + 1  # the first of the next month
            elif self.names_day(found):
                return day
            else:
                day += 1
        return None

    def _day_down_from(self, day: int, first: int) -> int | None:
        day, first = min(day, LAST_DAY), max(first, FIRST_DAY)
        while day >= first:
            found = date.fromordinal(day + _EPOCH)
            if found.month not in self.months:
                day -= found.day  # the last of the month before
            elif self.names_day(found):
                return day
            else:
                day -= 1
        return None
