"""What a schedule's author may ask for beside the timetable, checked once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypedDict, TypeVar

from django_reliable_jobs.schedules.errors import ScheduleError
from django_reliable_jobs.schedules.timetable import seconds_of
from django_reliable_jobs.values.durations import Duration, seconds
from django_reliable_jobs.values.moments import CALENDAR, in_calendar

DEFAULT_GRACE: Final = 60.0
DEFAULT_WINDOW: Final = 86_400.0
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 10_000


class Misfire(StrEnum):
    """What becomes of fire times that were missed, because no worker was there."""

    SKIP = "skip"  # none of them is made up for
    LATEST = "latest"  # one run, for the newest, unless one that is not missed is due as well
    ALL = "all"  # each of them, up to the limit


class Overlap(StrEnum):
    """What a fire does while a job of an earlier one is unfinished."""

    ALLOW = "allow"  # enqueues its job all the same
    SKIP = "skip"  # does nothing
    QUEUE = "queue"  # lets one job wait until the running one has finished
    CANCEL_RUNNING = "cancel_running"  # cancels the unfinished ones and enqueues its job


_Choice = TypeVar("_Choice", Misfire, Overlap)


class RuleOptions(TypedDict, total=False):
    """The rules as their author may write them. What each means, and its default: see `FiringRules`."""

    misfire: Misfire | str
    misfire_grace: Duration
    catch_up_window: Duration
    catch_up_limit: int
    overlap: Overlap | str
    jitter: Duration
    starts_at: datetime | None
    ends_at: datetime | None


@dataclass(frozen=True, init=False)
class FiringRules:
    """How a schedule's fire times turn into jobs. Durations are kept in seconds.

    misfire, misfire_grace, catch_up_window, catch_up_limit: see `misfire.plan`.
    overlap: see `overlap.decide`. jitter: the most by which a job is delayed, see `jitter.jitter`.
    starts_at, ends_at: fire times before the one and after the other do not exist; both moments themselves do.
    """

    misfire: Misfire
    misfire_grace: float
    catch_up_window: float
    catch_up_limit: int
    overlap: Overlap
    jitter: float
    starts_at: datetime | None
    ends_at: datetime | None

    def __init__(
        self,
        *,
        misfire: Misfire | str = Misfire.LATEST,
        misfire_grace: Duration = DEFAULT_GRACE,
        catch_up_window: Duration = DEFAULT_WINDOW,
        catch_up_limit: int = DEFAULT_LIMIT,
        overlap: Overlap | str = Overlap.ALLOW,
        jitter: Duration = 0,
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
    ) -> None:
        """Raises ScheduleError whose `field` names the parameter, TypeError for values of a wrong type."""
        values = {
            "misfire": _choice(Misfire, misfire, "misfire"),
            "misfire_grace": _seconds(misfire_grace, "misfire_grace"),
            "catch_up_window": _seconds(catch_up_window, "catch_up_window"),
            "catch_up_limit": _limit(catch_up_limit),
            "overlap": _choice(Overlap, overlap, "overlap"),
            "jitter": _seconds(jitter, "jitter"),
            "starts_at": _moment(starts_at, "starts_at"),
            "ends_at": _moment(ends_at, "ends_at"),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.starts_at is not None and self.ends_at is not None and self.ends_at < self.starts_at:
            raise ScheduleError("ends_at must not be earlier than starts_at", "ends_at")

    def values(self) -> dict[str, Any]:
        """What the rules are as plain values, by the names of `RULES`: those of the columns and of the options."""
        return {name: str(value) if isinstance(value := getattr(self, name), StrEnum) else value for name in RULES}

    def interval(self, after: datetime, until: datetime) -> tuple[datetime, datetime]:
        """Return the part of (after, until] that lies from `starts_at` to `ends_at`; empty if its end is not later."""
        if self.starts_at is not None and self.starts_at > CALENDAR[0]:
            after = max(after, self.starts_at - timedelta.resolution)
        if self.ends_at is not None:
            until = min(until, self.ends_at)
        return after, until


#: The names of all rules. A new one is a field above and a column; what takes and shows them goes by these names.
RULES: Final = tuple(each.name for each in fields(FiringRules))


def _choice(kind: type[_Choice], value: str, name: str) -> _Choice:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(each.value) for each in kind)
        raise ScheduleError(f"{name} must be one of {known}, not {value!r}", name) from None


def _seconds(value: Duration, name: str) -> float:
    try:
        return seconds(value, name)
    except ValueError as error:
        raise ScheduleError(str(error), name) from None


def _limit(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"catch_up_limit must be an integer, not {type(value).__name__}")
    if not 1 <= value <= MAX_LIMIT:
        raise ScheduleError(f"catch_up_limit must be from 1 to {MAX_LIMIT}", "catch_up_limit")
    return value


def _moment(value: datetime | None, name: str) -> datetime | None:
    if value is not None:
        try:
            seconds_of(value, name)
            if not 1 < value.year < 9999:
                return in_calendar(value, name)
        except ValueError as error:
            raise ScheduleError(str(error), name) from None
    return value
