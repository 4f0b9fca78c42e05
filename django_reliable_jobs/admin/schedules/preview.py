"""The next fire times of a schedule, as somebody who edits it wants to see them: in its zone, and in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from django.utils.formats import date_format
from django.utils.translation import gettext as _

from django_reliable_jobs.schedules import FiringRules, ScheduleError, as_timetable, next_fires
from django_reliable_jobs.schedules.zones import load_zone

#: Fire times that are shown.
COUNT = 10
#: Weekday, date and time to the second; the offset shows when the clocks change.
FORMAT = "D Y-m-d H:i:s O"


@dataclass(frozen=True, slots=True)
class Preview:
    """`rows` are pairs (in the zone, in UTC); `problem` says why there are none."""

    zone: str
    rows: tuple[tuple[str, str], ...] = ()
    problem: str = ""


def preview(
    expression: str,
    timezone: str,
    now: datetime,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
) -> Preview:
    """The fire times later than `now`, from `starts_at` to `ends_at`. What cannot be is said in words, never raised."""
    expression, timezone = expression.strip(), timezone.strip()
    if not expression:
        return Preview(timezone, problem=_("Write an expression to see when it fires."))
    try:
        zone = load_zone(timezone)
        after, until = FiringRules(starts_at=starts_at, ends_at=ends_at).interval(now, datetime.max.replace(tzinfo=UTC))
        times = [moment for moment in next_fires(as_timetable(expression, zone), zone, after, COUNT) if moment <= until]
    except ScheduleError as error:
        return Preview(timezone, problem=_("Not possible: %(problem)s.") % {"problem": str(error).rstrip(".")})
    if not times:
        return Preview(timezone, problem=_("It does not fire any more."))
    rows = tuple((date_format(each.astimezone(zone), FORMAT), date_format(each, FORMAT)) for each in times)
    return Preview(timezone, rows)
