"""The supervisor's look at a worker process: does anything in it still run (protocol 6)?

What the process finds out about itself (`progress`) it cannot when nothing in it runs any more: a C call that keeps the GIL.
None of its counters moves then. Time is counted in the supervisor's own rounds, so that a host that was suspended, or a
supervisor that was stopped with its workers, does not count; and a process that the kernel says is stopped (SIGSTOP, Ctrl-Z,
a debugger) is left alone.
"""

from __future__ import annotations

import time
from pathlib import Path

from django_reliable_jobs.worker.shared_state import WATCHDOG, SharedState

#: Seconds that a round counts at most.
ROUND = 1.0
#: The watchdog alone, which waits for nothing, may stand still for so many leases.
WATCHDOG_LEASES = 3


class ProcessWatch:
    """`lease` in seconds."""

    def __init__(self, shared: SharedState, lease: float) -> None:
        self._shared = shared
        self._lease = lease
        self._moves = shared.moves()
        self._looked_at = time.monotonic()
        self._still = self._watchdog_still = 0.0

    def look(self, pid: int) -> str | None:
        """Once in each round: why the process has to be killed, if it has."""
        now = time.monotonic()
        passed, self._looked_at = min(now - self._looked_at, ROUND), now
        before, self._moves = self._moves, self._shared.moves()
        if not self._moves[WATCHDOG] or is_stopped(pid):  # it is only starting, or it cannot move
            self._still = self._watchdog_still = 0.0
            return None
        self._still = self._still + passed if self._moves == before else 0.0
        self._watchdog_still = self._watchdog_still + passed if self._moves[WATCHDOG] == before[WATCHDOG] else 0.0
        if self._still >= self._lease:
            return (
                f"nothing in it has moved for {self._lease:g} s, as when a C call keeps Python's GIL{self._running()}"
            )
        if self._watchdog_still >= WATCHDOG_LEASES * self._lease:
            return f"its watchdog has not moved for {self._watchdog_still:.0f} s{self._running()}"
        return None

    def _running(self) -> str:
        jobs = sorted((self._shared.begun() or {}).values())
        return f"; it runs the jobs {', '.join(f'#{job}' for job in jobs[:20])}" if jobs else ""


def is_stopped(pid: int) -> bool:
    """Whether the kernel says so. True where it says nothing: nobody is killed for what cannot be known."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state in "Tt"
