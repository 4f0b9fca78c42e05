"""Five fields, as text, to a pattern of wall times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from croniter import croniter

from django_reliable_jobs.schedules.errors import ScheduleError
from django_reliable_jobs.schedules.fields import DAY_OF_MONTH, FIELD_NAMES, FIELDS, Field, month_name
from django_reliable_jobs.schedules.wall_times import WallPattern

#: `@hourly` has a star in its hour field, so it follows elapsed time; the others are fixed times.
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

#: A list of every minute has 170 characters; what is much longer than that is no expression.
MAX_LENGTH = 500

_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True)
class Expression:
    """A cron expression without its time zone: the text (fields parted by one space), and what it names."""

    text: str
    pattern: WallPattern
    fixed: bool  # neither the minute nor the hour field starts with a star: see `dst`


@lru_cache(maxsize=2048)
def parse_expression(text: str) -> Expression:
    """Read `text`, five fields or a nickname such as `@daily`.

    Raises ScheduleError that says what is wrong, also for dates that never come (30 February).
    """
    try:
        fields = _fields(text)
        expanded = _expand(fields)
        pattern = _pattern(fields, expanded)
        _check_that_it_comes(pattern)
    except ScheduleError as error:
        shown = text if len(text) <= 100 else text[:97] + "..."
        where = f"{error.field}: " if error.field in FIELD_NAMES else ""
        raise ScheduleError(f"cron expression {shown!r}: {where}{error}", error.field) from None
    minute, hour = fields[:2]
    text = " ".join(text.split())
    return Expression(text, pattern, fixed=not (minute.startswith("*") or hour.startswith("*")))


def _fields(text: str) -> list[str]:
    if len(text) > MAX_LENGTH:
        raise ScheduleError(f"it has more than {MAX_LENGTH} characters")
    if not text.isascii():
        raise ScheduleError("only ASCII characters are allowed")
    fields = text.split()
    if fields and fields[0].startswith("@"):
        fields = _nickname(fields)
    if len(fields) in (6, 7):
        raise ScheduleError(
            f"it has {len(fields)} fields. Some programs read an extra field as seconds at the start, others at the end"
            f" or as a year, so that 'every 30 seconds' turns into every second: write the five fields"
            f" {' '.join(FIELD_NAMES)}, and use a period (every 30 seconds) for less than a minute"
        )
    if len(fields) != len(FIELDS):
        raise ScheduleError(f"it has {_number(len(fields))}, it needs five: {' '.join(FIELD_NAMES)}")
    return fields


def _nickname(fields: list[str]) -> list[str]:
    name = fields[0].lower()
    if len(fields) == 1 and name in NICKNAMES:
        return NICKNAMES[name].split()
    if name == "@reboot":
        raise ScheduleError("@reboot has no meaning for a fleet of workers")
    if name == "@every":
        raise ScheduleError("@every is a period, not a cron expression")
    raise ScheduleError(f"unknown nickname; there are {', '.join(NICKNAMES)}, each alone")


def _expand(fields: list[str]) -> list[set[int | str]]:
    canonical = [field.canonical(text) for field, text in zip(FIELDS, fields, strict=True)]
    expanded, _ = croniter.expand(" ".join(canonical))
    return [set(values) for values in expanded]


def _pattern(fields: list[str], expanded: list[set[int | str]]) -> WallPattern:
    minutes, hours, days, months, weekdays = (
        _numbers(field, values) for field, values in zip(FIELDS, expanded, strict=True)
    )
    return WallPattern(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        last_day="l" in expanded[2],
        months=months,
        weekdays=weekdays,
        # The classic rule looks at the first character only, so that `*/2` counts as a star.
        either_day=not (fields[2].startswith("*") or fields[4].startswith("*")),
    )


def _numbers(field: Field, values: set[int | str]) -> frozenset[int]:
    if "*" in values:
        return frozenset(range(field.low, field.high + 1))
    return frozenset(value for value in values if isinstance(value, int))


def _check_that_it_comes(pattern: WallPattern) -> None:
    """Refuse a date that no year has; everything else comes within the 400 years in which weekdays repeat."""
    if pattern.last_day or pattern.either_day:
        return
    if min(pattern.days) > max(_LONGEST_MONTH[month - 1] for month in pattern.months):
        days = " or ".join(map(str, sorted(pattern.days)))
        months = ", ".join(month_name(month) for month in sorted(pattern.months))
        raise ScheduleError(f"there is no day {days} in {months}: it would never fire", DAY_OF_MONTH)


def _number(fields: int) -> str:
    return {0: "no field", 1: "one field"}.get(fields, f"{fields} fields")
