"""Jitter: many schedules of one fire time, spread over some seconds, in the same way on every pod."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import sha256

from django_reliable_jobs.schedules.timetable import EPOCH, seconds_of
from django_reliable_jobs.values.durations import Duration, seconds

_BITS = 64


def jitter(name: str, scheduled_for: datetime, max_delay: Duration, next_fire: datetime | None) -> timedelta:
    """Return by how much the job of the schedule `name` for the fire time `scheduled_for` is delayed.

    From zero to less than `max_delay` (seconds or a `timedelta`), and always less than what is left until `next_fire`
    (None: there is none), so that the order of runs stays that of their fire times. It is a hash: the same on every pod
    and at every try, and evenly spread over names and fire times. Raises ValueError for a negative `max_delay`.
    """
    seconds_of(scheduled_for, "scheduled_for")
    room = timedelta(seconds=seconds(max_delay, "max_delay"))
    if next_fire is not None:
        room = min(room, next_fire - scheduled_for)
    if room <= timedelta(0):
        return timedelta(0)
    instant = (scheduled_for - EPOCH) // timedelta.resolution
    digest = sha256(f"{instant} {name}".encode("utf-8", "surrogatepass")).digest()
    part = int.from_bytes(digest[: _BITS // 8])
    return timedelta(microseconds=(room // timedelta.resolution) * part >> _BITS)
