"""Periods: every so many seconds, counted from one fixed moment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django_reliable_jobs.schedules.errors import ScheduleError
from django_reliable_jobs.schedules.timetable import Timetable
from django_reliable_jobs.schedules.zones import FIRST, LAST
from django_reliable_jobs.values.durations import MAX_SECONDS

PREFIX: Final = "@every"

_UNITS: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_DURATION: Final = re.compile(
    r"(?=\S)(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s?)?", re.ASCII | re.IGNORECASE
)


@dataclass(frozen=True, init=False)
class Every(Timetable):
    """Fires whenever the seconds since 1970-01-01 00:00 UTC are a multiple of the period.

    So every pod has the same fire times, a restart changes nothing, and time zones and their changes do not matter:
    `Every(86_400)` is midnight UTC. A period that does not divide a day (7 minutes) drifts over the day; one of a week
    begins on a Thursday.
    """

    seconds: int

    def __init__(self, period: float | timedelta) -> None:
        """`period` is a whole number of seconds, or a `timedelta` of whole seconds: from one second to ten years.

        Raises ScheduleError for other periods and TypeError for what is no duration.
        """
        object.__setattr__(self, "seconds", _whole_seconds(period))

    @classmethod
    def parse(cls, text: str) -> Every:
        """Read `@every 90`, `@every 90s`, `@every 5m` or `@every 1h30m` (d, h, m, s, in this order)."""
        prefix, _, rest = text.strip().partition(" ")
        match = _DURATION.fullmatch(rest.strip())
        if prefix.lower() != PREFIX or match is None:
            raise ScheduleError(
                f"period {text[:60]!r} cannot be read; write {PREFIX} 90, {PREFIX} 5m or {PREFIX} 1h30m"
            )
        return cls(sum(int(number or 0) * unit for number, unit in zip(match.groups(), _UNITS.values(), strict=True)))

    @property
    def text(self) -> str:
        """Such as `@every 300`."""
        return f"{PREFIX} {self.seconds}"

    def __str__(self) -> str:
        return self.text

    def _ascending(self, after: int, until: int | None) -> Iterator[int]:
        after, until = max(after, FIRST), LAST if until is None else min(until, LAST)
        yield from range((after // self.seconds + 1) * self.seconds, until + 1, self.seconds)

    def _descending(self, after: int | None, until: int) -> Iterator[int]:
        after, until = FIRST if after is None else max(after, FIRST), min(until, LAST)
        yield from range(until // self.seconds * self.seconds, after, -self.seconds)

    def _count(self, after: int, until: int) -> int:
        after, until = max(after, FIRST), min(until, LAST)
        return max(0, until // self.seconds - after // self.seconds)


def _whole_seconds(period: float | timedelta) -> int:
    if isinstance(period, bool) or not isinstance(period, (int, float, timedelta)):
        raise TypeError(f"a period must be seconds (a number) or a timedelta, not {type(period).__name__}")
    exact = period.total_seconds() if isinstance(period, timedelta) else period
    if not 1 <= exact <= MAX_SECONDS:  # also true for NaN
        raise ScheduleError(f"a period must be from 1 to {MAX_SECONDS:.0f} seconds, not {_shown(period)}", "period")
    if exact != int(exact):
        raise ScheduleError(f"a period must be whole seconds, not {period}", "period")
    return int(exact)


def _shown(period: float | timedelta) -> str:
    return "an integer of that size" if isinstance(period, int) and abs(period) > 10**18 else str(period)
