"""Cron expressions in a time zone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from django_reliable_jobs.schedules.dst import Span, earliest_wall, latest_wall, spans
from django_reliable_jobs.schedules.expression import Expression, parse_expression
from django_reliable_jobs.schedules.timetable import Timetable
from django_reliable_jobs.schedules.wall_times import DAY
from django_reliable_jobs.schedules.zones import FIRST, LAST, load_zone

# How much of the calendar is looked at in one go.
_CHUNK: Final = 32 * DAY


@dataclass(frozen=True)
class CronExpression(Timetable):
    """Five fields and a time zone. Make one with `parse`; `dst` says what happens when the clocks change."""

    expression: Expression
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str, timezone: str | tzinfo) -> CronExpression:
        """Read a cron expression (or a nickname such as `@daily`) for the zone of that name.

        Raises ScheduleError, with a message for its author, for what is no expression or no zone, and for dates that
        never come; TypeError for what is no text.
        """
        if not isinstance(text, str):
            raise TypeError(f"a cron expression must be a string, not {type(text).__name__}")
        return cls(parse_expression(text), load_zone(timezone))

    @property
    def text(self) -> str:
        """The expression as it was written, without its zone."""
        return self.expression.text

    @property
    def timezone(self) -> str:
        """The name of the zone."""
        return self.zone.key

    def __str__(self) -> str:
        return f"{self.text} ({self.timezone})"

    def _ascending(self, after: int, until: int | None) -> Iterator[int]:
        after, until = max(after, FIRST), LAST if until is None else min(until, LAST)
        while after < until:
            end, empty = min(after + _CHUNK, until), True
            for span in self._spans(after, end):
                for instant in self._rising(span):
                    yield instant
                    empty = False
            after = end
            if empty:  # then it is rare: go to where the calendar has it next
                wall = next(self.expression.pattern.ascending(earliest_wall(end), latest_wall(until)), None)
                if wall is None:
                    return
                after = max(end, wall - 2 * DAY)

    def _descending(self, after: int | None, until: int) -> Iterator[int]:
        after, until = FIRST if after is None else max(after, FIRST), min(until, LAST)
        while after < until:
            start, empty = max(until - _CHUNK, after), True
            for span in reversed(list(self._spans(start, until))):
                for instant in self._falling(span):
                    yield instant
                    empty = False
            until = start
            if empty:
                wall = next(self.expression.pattern.descending(earliest_wall(after), latest_wall(start)), None)
                if wall is None:
                    return
                until = min(start, wall + 2 * DAY)

    def _count(self, after: int, until: int) -> int:
        after, until = max(after, FIRST), min(until, LAST)
        if after >= until:
            return 0
        pattern = self.expression.pattern
        return sum(
            pattern.count(span.low, span.high) if span.at is None else pattern.any(span.low, span.high)
            for span in self._spans(after, until)
        )

    def _spans(self, after: int, until: int) -> Iterator[Span]:
        return spans(self.zone, self.expression.fixed, after, until)

    def _rising(self, span: Span) -> Iterator[int]:
        walls = self.expression.pattern.ascending(span.low, span.high)
        return map(span.instant, walls) if span.at is None else _once(walls, span.at)

    def _falling(self, span: Span) -> Iterator[int]:
        walls = self.expression.pattern.descending(span.low, span.high)
        return map(span.instant, walls) if span.at is None else _once(walls, span.at)


def _once(walls: Iterator[int], instant: int) -> Iterator[int]:
    if next(walls, None) is not None:
        yield instant
