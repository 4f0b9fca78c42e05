"""How many jobs a worker may hold beyond its free slots (protocol 8).

A round trip and a commit take longer than a short job. While jobs are short, some 50 ms of work waits in memory, so
that slots need not wait for the database; when jobs are slow, or another worker has free slots, nothing does.

Whatever the setting, what waits must flow: nothing is taken ahead while all slots have been busy for a moment, and what
has waited for `HOLD` is handed back. After that nothing is taken ahead until a slot was free, and half as much then, so
that a worker does not claim the same jobs again and again; what was held in vain is won back by and by.
"""

from __future__ import annotations

from typing import Literal

from django_reliable_jobs import conf

#: Seconds of work to hold.
HORIZON = 0.05
#: Whatever the jobs' length, with "auto".
MOST = 500
#: Seconds after the last begin from which on nothing is claimed ahead of slots that are all busy.
STALLED = 0.05
#: Seconds that a job waits in memory at most.
HOLD = 1.0
#: Payload bytes of all that waits, and of one claim, in the text that the database sends. The first job for a free slot
#: always fits.
MOST_BYTES = 16_000_000
_WEIGHT = 0.05
#: After so many full claims in a row what the others say of their free slots is out of date, or they serve other queues.
PLENTY = 3


def most_leases(slots: int) -> int:
    """How many leases a process may hold: in its slots, in threads that are written off, ahead, and not recorded yet."""
    setting = conf.current().prefetch
    return 2 * slots + MOST + (setting if isinstance(setting, int) else 0)


class Prefetch:
    """Knows the recent mean run time of a handler, in seconds, and what the other workers say of themselves."""

    def __init__(self, setting: int | Literal["auto"], slots: int) -> None:
        self._setting = setting
        self._slots = slots
        self._mean: float | None = None
        self.free_elsewhere = 0
        self._full = 0
        #: As many as lately have begun in time.
        self._flow = self._most = MOST if setting == "auto" else setting
        self._shut = False

    def took(self, seconds: float) -> None:
        self._mean = seconds if self._mean is None else self._mean + (seconds - self._mean) * _WEIGHT

    def claimed(self, full: bool) -> None:
        """`full`: a claim brought all that it asked for. So there is more work than the others' free slots take."""
        self._full = self._full + 1 if full else 0

    def handed_back(self) -> None:
        """What was taken ahead has not begun in time."""
        self._flow = max(1, self._flow // 2)
        self._shut = True

    def slot_free(self, *, all_begun: bool) -> None:
        """A slot is free; `all_begun`: nothing waits for it."""
        self._shut = False
        if all_begun and self._flow < self._most:
            self._flow = min(self._most, self._flow + max(1, self._flow // 8))

    def ahead(self) -> int:
        return 0 if self._shut else min(self._flow, self._wanted())

    def _wanted(self) -> int:
        if self._setting != "auto":
            return self._setting
        if self._mean is None or self._mean >= HORIZON or (self.free_elsewhere > 0 and self._full < PLENTY):
            return 0
        return min(MOST, int(self._slots * HORIZON / max(self._mean, 1e-6)))
