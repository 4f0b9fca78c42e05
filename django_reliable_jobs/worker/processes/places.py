"""What a supervisor knows of its worker processes: a place for each of `--processes`, and who is in it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from django_reliable_jobs.worker.maintenance.maintenance import DEAD_FOR, DeadWorker
from django_reliable_jobs.worker.processes.process_watch import ProcessWatch
from django_reliable_jobs.worker.processes.supervisor_line import WorkerLine
from django_reliable_jobs.worker.shared_state import SharedState

#: A worker that died within this many seconds of its start is started again with a pause, doubled each time.
SHORT_LIFE = 5.0
PAUSE = (0.5, 15.0)


@dataclass
class Running:
    """A worker process that has not ended. `started` is monotonic; `killed` is why this supervisor has killed it."""

    pid: int
    worker: UUID
    line: WorkerLine
    started: float
    shared: SharedState
    watch: ProcessWatch
    killed: str | None = None


@dataclass
class Place:
    """A place for a worker process, and for the one before it while that waits for what it runs.

    `dead` are workers of this place that died, and when: their leases are to be taken back. `ran` counts the jobs of
    those that have ended, for `--max-jobs`. `over`: the one in it has done its limited task.
    """

    current: Running | None = None
    predecessor: Running | None = None
    start_at: float = 0.0
    short_lives: int = 0
    over: bool = False
    ran: int = 0
    dead: list[tuple[DeadWorker, float]] = field(default_factory=list)

    @property
    def running(self) -> list[Running]:
        return [one for one in (self.current, self.predecessor) if one is not None]

    @property
    def dead_workers(self) -> list[DeadWorker]:
        return [dead for dead, _ in self.dead]

    def ended(self, one: Running, *, died: bool) -> DeadWorker | None:
        """Its process has ended; a place that has lost its worker gets the next one now, or after a pause.

        Returns it if its leases are to be taken back.
        """
        now = time.monotonic()
        if one is self.predecessor:
            self.predecessor = None
        else:
            self.current = None
            # What it was told of long enough ago it has taken back; one that died sooner may not have.
            self.dead = [(dead, since) for dead, since in self.dead if now - max(since, one.started) <= DEAD_FOR]
            self.short_lives = self.short_lives + 1 if died and now - one.started < SHORT_LIFE else 0
            longer = min(self.short_lives - 2, 10)
            self.start_at = now + (0.0 if self.short_lives <= 1 else min(PAUSE[1], PAUSE[0] * 2**longer))
        if not died:
            return None
        begun = one.shared.begun()
        lost = DeadWorker(one.worker, None if begun is None else tuple(begun))
        self.dead.append((lost, now))
        return lost


def everybody(places: Iterable[Place]) -> Iterator[Running]:
    for place in places:
        yield from place.running


def ended_how(pid: int) -> int | None:
    """The exit code of a child process (negative: the signal), None while it runs.

    When somebody else in this process has waited for it, a library with a bare `os.wait()`, how it ended is not known:
    then it counts as killed.
    """
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return -9
    return os.waitstatus_to_exitcode(status) if ended else None


def reap_orphans(known: set[int]) -> None:
    """As process 1 we inherit the zombies of others. Look before waiting: no known child's status is taken."""
    for _ in range(100):
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid in known:
            return
        os.waitpid(found.si_pid, 0)
