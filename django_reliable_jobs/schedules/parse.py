"""From what a person wrote, or a row holds, to a timetable and its fire times."""

from __future__ import annotations

from datetime import datetime, tzinfo
from itertools import islice

from django_reliable_jobs.schedules.cron import CronExpression
from django_reliable_jobs.schedules.every import PREFIX, Every
from django_reliable_jobs.schedules.timetable import Timetable
from django_reliable_jobs.schedules.zones import load_zone


def as_timetable(expression: str | Timetable, timezone: str | tzinfo) -> Timetable:
    """Return the timetable that `expression` is or describes: a cron expression, or `@every` with a period.

    The zone is checked for a period too, although it makes no difference. Raises ScheduleError, with a message for the
    author of the expression, and TypeError for what is no text.
    """
    if isinstance(expression, Timetable):
        return expression
    if isinstance(expression, str) and expression.strip().lower().startswith(PREFIX):
        load_zone(timezone)
        return Every.parse(expression)
    return CronExpression.parse(expression, timezone)


def next_fires(expression: str | Timetable, timezone: str | tzinfo, after: datetime, count: int = 1) -> list[datetime]:
    """Return the first `count` fire times later than `after`: aware, in UTC, rising.

    This is the one function that the worker, the admin's preview and the checks ask. `expression` is a cron expression
    (five fields, `@daily`), a period (`@every 5m`) or a timetable; `timezone` the name of a zone of the IANA database.
    The list is shorter only at the end of the calendar, in the year 9999. Raises ScheduleError for what cannot be
    computed and ValueError for an `after` that is naive.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    return list(islice(as_timetable(expression, timezone).following(after), count))
