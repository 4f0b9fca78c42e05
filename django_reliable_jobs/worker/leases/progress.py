"""A heartbeat is proof of progress: who may extend leases, and when a process whose parts stand still ends (protocol 6).

A stop exception is raised in a handler's thread wherever that is just then: between the acquire of a lock and its `try` in
any library, too. A lock of the whole process (a log handler's) stays taken then, and whoever wants it waits for ever: the
engine, the watchdog, other slots. The heartbeat, in its own thread, would go on extending leases that nobody works on.

So it looks whether the others have moved. A wait for the database is bounded, and is a move when it begins and when it
ends. Standing still is counted in beats that went through: while the database is away, while the process is stopped
(SIGSTOP, Ctrl-Z) or its host suspended, there are none. What is here and in `heartbeat` takes no lock that a handler could
hold: no logging, no `Thread.start`.
"""

from __future__ import annotations

import faulthandler
import math
import os
import time
from contextlib import suppress
from typing import NamedTuple

from django_reliable_jobs.worker import exit_codes
from django_reliable_jobs.worker.shared_state import ENGINE, MAIN, MAINTENANCE, PARTS, WATCHDOG, SharedState

#: Beats without a move of these from which on leases are not extended: they have not moved since the beat before last.
LATE = 2
#: The end comes after at least so many beats.
FEWEST = 3
#: How much longer each part may stand still. Maintenance computes: many fire times of many schedules, say.
PATIENCE = {ENGINE: 1, WATCHDOG: 1, MAIN: 1, MAINTENANCE: 10}


class Look(NamedTuple):
    """What a beat has seen. It counts once the beat went through."""

    at: float
    counts: bool
    moves: tuple[int, ...]
    still: dict[int, int]

    @property
    def may_extend(self) -> bool:
        return self.still[ENGINE] < LATE and self.still[WATCHDOG] < LATE


class ProgressWatch:
    """Counts for how many beats each part has stood still. `lease` and `heartbeat` in seconds."""

    def __init__(self, shared: SharedState, lease: float, heartbeat: float) -> None:
        self._shared = shared
        self._limit = max(FEWEST, math.ceil(lease / heartbeat))
        self._apart = 0.9 * heartbeat
        self._next = 0.0
        self._moves = shared.moves()
        self._still = dict.fromkeys(PATIENCE, 0)

    def look(self) -> Look:
        """Before a beat. One that comes soon after another (somebody cancelled a job) is too soon to count."""
        now = time.monotonic()
        counts = now >= self._next
        moves, running = self._shared.moves(), self._shared.running
        still = {
            part: before + counts if moves[part] == self._moves[part] and part in running else 0
            for part, before in self._still.items()
        }
        return Look(now, counts, moves, still)

    def went_through(self, look: Look) -> str | None:
        """After a beat: what has stood still for too long."""
        if look.counts:
            self._next = look.at + self._apart
            self._moves, self._still = look.moves, look.still
        for part, still in self._still.items():
            if still >= self._limit * PATIENCE[part]:
                return f"its {PARTS[part]} thread has not moved during {still} heartbeats"
        return None


def end_process(worker: object, reason: str) -> None:
    """Write all stacks to the standard error, and end with a status of its own. Waits for nobody, and cleans up nothing."""
    with suppress(BaseException):
        line = f"worker {worker} ({os.getpid()}) ends: {reason}. Where its threads are:\n"
        os.write(2, line.encode(errors="replace"))
        faulthandler.dump_traceback(2, all_threads=True)
    os._exit(exit_codes.ORDERLY + exit_codes.STUCK)
