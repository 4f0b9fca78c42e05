"""Time zones by name, and when their clocks change."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from django_reliable_jobs.schedules.errors import ScheduleError
from django_reliable_jobs.schedules.wall_times import DAY, FIRST_DAY, LAST_DAY

#: The instants that may be asked for, in seconds since 1970-01-01 UTC.
FIRST: Final = FIRST_DAY * DAY
LAST: Final = LAST_DAY * DAY

#: No offset from UTC is as long as this, so no wall time is further away from its instant.
MAX_OFFSET: Final = DAY

# Offsets are compared every twelve hours; the closest changes of one zone since 1970 are a week apart.
_STEP: Final = DAY // 2
_BLOCK: Final = 32 * DAY

# Files in a zone directory that are no zones of the database; those in `right` count leap seconds.
_NO_ZONES: Final = ("right/", "posix/", "posixrules")


class Change(NamedTuple):
    """The clocks of a zone change at `instant`; offsets are seconds east of UTC."""

    instant: int
    before: int
    after: int


def load_zone(timezone: str | tzinfo) -> ZoneInfo:
    """Return the zone called `timezone`; a `ZoneInfo` and `datetime.UTC` stand for themselves.

    Raises ScheduleError that names it for what is no zone of the IANA database, TypeError for what is no name at all.
    """
    if timezone is UTC:
        return ZoneInfo("UTC")
    key = timezone.key if isinstance(timezone, ZoneInfo) else timezone
    if not isinstance(key, str):
        raise TypeError(f"timezone must be the name of a zone, such as Europe/Paris, not {type(timezone).__name__}")
    try:
        if not key.startswith(_NO_ZONES):
            return ZoneInfo(key)
    except (ValueError, OSError, LookupError):  # a path out of the database, a folder, a file that is no zone
        pass
    raise ScheduleError(f"unknown time zone {key[:60]!r}{_hint(key)}", "timezone")


def _hint(key: str) -> str:
    known = available_timezones() - {"localtime", "Factory"}
    if not known:
        return ": this host has no time zone database, install the package tzdata"
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(key[:60].lower().replace(" ", "_"), by_lower, n=1)
    return f"; did you mean {by_lower[close[0]]}?" if close else "; write a name such as Europe/Paris or UTC"


def offset_at(zone: ZoneInfo, instant: int) -> int:
    """Return the seconds east of UTC at `instant` (seconds since 1970-01-01 UTC)."""
    moment = datetime.fromtimestamp(min(max(instant, FIRST), LAST), zone)
    offset = moment.utcoffset()
    assert offset is not None
    return offset.days * DAY + offset.seconds


def changes(zone: ZoneInfo, after: int, until: int) -> Iterator[Change]:
    """Yield the changes of the zone's offset at instants in (after, until], in order."""
    for block in range(after // _BLOCK, until // _BLOCK + 1):
        yield from (change for change in _changes_in(zone, block) if after < change.instant <= until)


@lru_cache(maxsize=4096)
def _changes_in(zone: ZoneInfo, block: int) -> tuple[Change, ...]:
    """The changes at instants in the block; one at its very start belongs to it."""
    start, end = block * _BLOCK, (block + 1) * _BLOCK
    found, before = [], offset_at(zone, start - 1)
    for left, right in pairwise([start - 1, *range(start, end, _STEP), end - 1]):
        after = offset_at(zone, right)
        if after != before:
            found.append(Change(_bisect(zone, left, right, before), before, after))
            before = after
    return tuple(found)


def _bisect(zone: ZoneInfo, left: int, right: int, before: int) -> int:
    """Return the first instant in (left, right] whose offset is no longer `before`."""
    while right - left > 1:
        middle = (left + right) // 2
        if offset_at(zone, middle) == before:
            left = middle
        else:
            right = middle
    return right
