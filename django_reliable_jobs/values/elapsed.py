"""Time that passes for leases, which run out in the database whatever this host does."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def elapsed() -> float:
    """Seconds since some moment. They go on while the host is suspended, which those of `time.monotonic()` do not on Linux."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
