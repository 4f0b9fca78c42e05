"""How many jobs a worker may hold beyond its free slots (protocol 8).

A round trip and a commit take longer than a short job. While jobs are short, some 50 ms of work waits in memory, so
that slots need not wait for the database; when jobs are slow, or another worker has free slots, nothing does.
"""

from __future__ import annotations

from typing import Literal

#: Seconds of work to hold.
HORIZON = 0.05
#: Whatever the jobs' length: a crash costs an attempt of all that is held.
MOST = 500
_WEIGHT = 0.05
#: After so many full claims in a row what the others say of their free slots is old news, or they serve other queues.
PLENTY = 3


class Prefetch:
    """Knows the recent mean run time of a handler, in seconds, and what the other workers say of themselves."""

    def __init__(self, setting: int | Literal["auto"], slots: int) -> None:
        self._setting = setting
        self._slots = slots
        self._mean: float | None = None
        self.free_elsewhere = 0
        self._full = 0

    def took(self, seconds: float) -> None:
        self._mean = seconds if self._mean is None else self._mean + (seconds - self._mean) * _WEIGHT

    def claimed(self, full: bool) -> None:
        """`full`: a claim brought all that it asked for. So there is more work than the others' free slots take."""
        self._full = self._full + 1 if full else 0

    def ahead(self) -> int:
        if self._setting != "auto":
            return self._setting
        if self._mean is None or self._mean >= HORIZON or (self.free_elsewhere > 0 and self._full < PLENTY):
            return 0
        return min(MOST, int(self._slots * HORIZON / max(self._mean, 1e-6)))
