from tests.support.schedules.fixtures import (
    _no_schedules_in_code,
    clock,
    fast_clock,
    fleet,
    sessions,
)

__all__ = [
    "_no_schedules_in_code",
    "clock",
    "fast_clock",
    "fleet",
    "sessions",
]
