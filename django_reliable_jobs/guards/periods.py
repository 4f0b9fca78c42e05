"""Periods: from what a caller writes to the moment when the present one ends."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from django_reliable_jobs.schedules import Every, Timetable, as_timetable
from django_reliable_jobs.schedules.timetable import EPOCH

#: Whole seconds, a `timedelta` of whole seconds, a cron expression (in the zone of TIME_ZONE), or a timetable of
#: `schedules`, such as `CronExpression.parse("0 10 * * *", "Asia/Ho_Chi_Minh")`.
Period = float | timedelta | str | Timetable


def as_period(period: Period) -> Timetable:
    """Raises ScheduleError or TypeError for what is no period."""
    if isinstance(period, (str, Timetable)):
        return as_timetable(period, timezone.get_default_timezone_name())
    return Every(period)


def end_of_period(timetable: Timetable, now: float) -> float | None:
    """When the period ends that `now` (seconds since 1970) is in; None: it is the last one of the calendar."""
    end = timetable.next_after(EPOCH + timedelta(seconds=now))
    return None if end is None else end.timestamp()
