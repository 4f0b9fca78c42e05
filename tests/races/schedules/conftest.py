from tests.support.schedules.fixtures import (
    _no_schedules_in_code,
    clock,
    fast_clock,
    fleet,
    monotonic,
    sessions,
)

__all__ = [
    "_no_schedules_in_code",
    "clock",
    "fast_clock",
    "fleet",
    "monotonic",
    "sessions",
]
