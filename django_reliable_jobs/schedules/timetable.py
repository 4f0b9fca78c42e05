"""What a cron expression and a period have in common: fire times, in order, as whole seconds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)


class Timetable(ABC):
    """Fire times: whole seconds, each later than the one before. Values are immutable and can be shared by threads.

    Every answer is an aware datetime in UTC, every moment that is asked for must be aware (ValueError if it is not),
    in any zone. An interval (after, until] has its end but not its start, so that intervals can be put in a row.
    """

    @property
    @abstractmethod
    def text(self) -> str:
        """The timetable as a person writes it; `as_timetable` reads it back."""

    @abstractmethod
    def _ascending(self, after: int, until: int | None) -> Iterator[int]:
        """Yield the fire times in (after, until], or to the end of the calendar, rising."""

    @abstractmethod
    def _descending(self, after: int | None, until: int) -> Iterator[int]:
        """Yield the fire times in (after, until], or from the start of the calendar, falling."""

    @abstractmethod
    def _count(self, after: int, until: int) -> int:
        """Return how many fire times there are in (after, until]."""

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first fire time later than `moment`; None at the end of the calendar (the year 9999)."""
        found = next(self._ascending(seconds_of(moment, "moment"), None), None)
        return None if found is None else moment_of(found)

    def latest_at(self, moment: datetime) -> datetime | None:
        """Return the last fire time at or before `moment`, None if there is none."""
        found = next(self._descending(None, seconds_of(moment, "moment")), None)
        return None if found is None else moment_of(found)

    def matches(self, moment: datetime) -> bool:
        """Return whether `moment` is a fire time, to the microsecond."""
        return self.latest_at(moment) == moment

    def following(self, after: datetime) -> Iterator[datetime]:
        """Yield the fire times later than `after`, without end but for the calendar's."""
        return map(moment_of, self._ascending(seconds_of(after, "after"), None))

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the fire times in (after, until], rising."""
        return map(moment_of, self._ascending(seconds_of(after, "after"), seconds_of(until, "until")))

    def newest(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """Return the last `limit` fire times in (after, until], rising, however many there are before them."""
        falling = self._descending(seconds_of(after, "after"), seconds_of(until, "until"))
        return [moment_of(each) for each in islice(falling, limit)][::-1]

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many fire times there are in (after, until]; years are counted in milliseconds."""
        return self._count(seconds_of(after, "after"), seconds_of(until, "until"))


def seconds_of(moment: datetime, name: str) -> int:
    """Return the whole seconds since 1970-01-01 UTC at `moment`, rounded down; `name` is what the error calls it."""
    if not isinstance(moment, datetime):
        raise TypeError(f"{name} must be a datetime, not {type(moment).__name__}")
    if moment.utcoffset() is None:
        raise ValueError(f"{name} must be an aware datetime, not the naive {moment.isoformat()}")
    return (moment - EPOCH) // _SECOND


def moment_of(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)
