"""Moments: what a person gives (a datetime) as one that every reader of the row can hold.

PostgreSQL's calendar goes from 4713 BC to the year 294276, Python's from 1 to 9999, and each reader reads it in a zone of
its own: `datetime.max` in New York is in the year 10000 in UTC, where nothing in Python can be told of it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.conf import settings
from django.utils import timezone

#: The first and the last moment that Python has in UTC; a row of `Job` holds no other.
CALENDAR = (datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
#: What every zone can show; a stored moment beyond is read as the nearer of the two (`{moment …}` in the store's SQL).
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, tzinfo=UTC)


def moment(value: datetime, name: str) -> datetime:
    """`value` as an aware datetime; `name` is what the error calls it.

    Raises TypeError for what is no datetime, and ValueError for a naive one under `USE_TZ` and for one that is beyond the
    calendar (the years 1 to 9999) in UTC or in the project's zone.
    """
    if not isinstance(value, datetime):
        raise TypeError(f"{name} is a datetime, not {type(value).__name__}")
    if timezone.is_naive(value):
        if settings.USE_TZ:
            raise ValueError(f"{name} is a naive datetime ({value!r}); under USE_TZ pass an aware one.")
        value = value.replace(tzinfo=timezone.get_default_timezone())
    return value if 1 < value.year < 9999 else in_calendar(value, name)


def in_calendar(value: datetime, name: str) -> datetime:
    """The aware `value` in UTC. Raises ValueError if UTC or the project's zone has no such moment."""
    try:
        in_utc = value.astimezone(UTC)
        in_utc.astimezone(timezone.get_default_timezone())
    except (OverflowError, ValueError):
        raise ValueError(
            f"{name} ({value!r}) is beyond the calendar (the years 1 to 9999) in UTC or in the project's zone,"
            f" {timezone.get_default_timezone_name()}."
        ) from None
    return in_utc


def shown(value: datetime) -> datetime:
    """The aware `value`, or the nearest moment that the zone in which pages are shown just now has."""
    if 1 < value.year < 9999:
        return value
    try:
        timezone.localtime(value)
    except (OverflowError, ValueError):
        return EARLIEST if value.year == 1 else LATEST
    return value
