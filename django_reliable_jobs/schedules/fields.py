"""The grammar of one field of a cron expression.

croniter expands the fields, but it is not asked what they mean: its releases disagree about `59/15` and `5-5` (6.0
reads both as the whole cycle), and it takes much that is a typing error in a crontab, or that every pod would read
differently (`H` and `R` are hashed and random). So each item is checked here first and rewritten into the shapes on
which all releases agree: `*`, a number, a rising range with a step, and `l`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from django_reliable_jobs.schedules.errors import ScheduleError

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_LAST_DAY = "l"

#: One item of a list: a star or a value or a range, each perhaps with a step.
_ITEM = re.compile(r"(?:(?P<star>\*)|(?P<low>[a-z0-9]+)(?:-(?P<high>[a-z0-9]+))?)(?:/(?P<step>[0-9]+))?", re.ASCII)
#: What Quartz and others have: the last Friday (5L), the weekday nearest to a day (15W), the third last day (L-3).
_QUARTZ = re.compile(r"[a-z0-9]+[lw]|[lw][a-z0-9-]+", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,4}", re.ASCII)


@dataclass(frozen=True)
class Field:
    """One of the five fields: its name in messages, its range (both ends belong to it), and its names for values."""

    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)
    cyclic: bool = False  # a range may run over the end and go on at the start

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    def canonical(self, text: str) -> str:
        """Return `text` (a whole field, in any case) as a list that every croniter expands in the same way.

        Raises ScheduleError that names the field and the item.
        """
        return ",".join(self._item(item) for item in text.lower().split(","))

    def _item(self, item: str) -> str:
        if item == _LAST_DAY and self.name == DAY_OF_MONTH:
            return item
        match = _ITEM.fullmatch(item)
        if match is None:
            raise self._error(self._what_is_wrong(item))
        step = self._step(match["step"])
        if match["star"]:
            return "*" if step is None else self._range(self.low, self.high, step)
        low = self._value(match["low"])
        if match["high"] is not None:
            return self._between(item, low, self._value(match["high"]), step or 1)
        low = low if low <= self.high else self.low  # Sunday as 7
        return str(low) if step is None else self._range(low, self.high, step)  # "10/15": from 10 on, each 15th

    def _between(self, item: str, low: int, high: int, step: int) -> str:
        if low <= high:
            if high <= self.high:
                return self._range(low, high, step)
        elif self.cyclic:
            high += self.size
        else:
            raise self._error(
                f"the range {item} runs backwards; only weekdays may wrap around, write"
                f" {low}-{self.high},{self.low}-{high} instead"
            )
        # FRI-MON, or 5-7 with Sunday as 7: a list of days, as a range that wraps is where libraries differ most.
        days = [self.low + (value - self.low) % self.size for value in range(low, high + 1, step)]
        return ",".join(map(str, sorted(set(days))))

    @staticmethod
    def _range(low: int, high: int, step: int) -> str:
        # A range of one value is written as that value: to croniter `5-5` is the whole cycle.
        return str(low) if low + step > high else f"{low}-{high}/{step}"

    def _step(self, text: str | None) -> int | None:
        if text is None:
            return None
        step = int(text) if _NUMBER.fullmatch(text) else 0
        if not 1 <= step <= self.size:
            raise self._error(
                f"the step {_shown(text)} is not in 1-{self.size}; a step starts again with each {_CYCLE[self.name]}"
            )
        return step

    def _value(self, text: str) -> int:
        if text in self.names:
            return self.names[text]
        if not text.isdigit():
            raise self._error(self._what_is_wrong(text))
        value = int(text) if _NUMBER.fullmatch(text) else -1
        top = self.high + 1 if self.cyclic else self.high  # 7 is Sunday, like 0
        if not self.low <= value <= top:
            raise self._error(f"{_shown(text)} is not in {self.low}-{top}")
        return value

    def _what_is_wrong(self, item: str) -> str:
        shown = _shown(item)
        if not item:
            return "an item of the list is empty"
        if "?" in item:
            return "? is not used here, write *"
        if item[0] in "hr" and not item[1:2].isalpha():
            return f"{shown} would pick a time by hash or at random; write a time, and spread jobs with jitter"
        if "#" in item or _QUARTZ.fullmatch(item):
            return f"{shown} is not supported; there is L, alone or in a list, for the last day of the month"
        if item == _LAST_DAY and self.name == DAY_OF_MONTH:
            return "L cannot be part of a range"
        if item == _LAST_DAY:
            return f"L (the last day of the month) belongs into the {DAY_OF_MONTH} field"
        if item[:3] in self.names:
            return f"{shown} is not known, write {item[:3].upper()}"
        names = f" or {', '.join(name.upper() for name in self.names)}" if self.names else ""
        return f"{shown} cannot be read; it takes *, numbers{names}, ranges and steps"

    def _error(self, message: str) -> ScheduleError:
        return ScheduleError(message, self.name)


DAY_OF_MONTH: Final = "day-of-month"

#: In the order in which they are written.
FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field(DAY_OF_MONTH, 1, 31),
    Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    Field("day-of-week", 0, 6, {name: number for number, name in enumerate(_WEEKDAYS)}, cyclic=True),
)
FIELD_NAMES = tuple(each.name for each in FIELDS)
_CYCLE = dict(zip(FIELD_NAMES, ("hour", "day", "month", "year", "week"), strict=True))


def month_name(number: int) -> str:
    """Return the three letters of a month (1 to 12)."""
    return _MONTHS[number - 1].capitalize()


def _shown(text: str) -> str:
    return repr(text if len(text) <= 20 else text[:17] + "...")
