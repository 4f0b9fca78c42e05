"""Slots: the threads that run handlers.

A slot takes an attempt from the queue that all slots share, runs it, reports what it came to, puts its thread's
connections in order and takes the next. A slot whose handler does not come back is written off: a fresh thread takes
its place, and the old one ends when its handler does, its late result is discarded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from uuid import UUID

from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.errors import LeaseLost
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.values.outcome import UNBEGUN, Outcome
from django_reliable_jobs.worker import log
from django_reliable_jobs.worker.handlers import executor
from django_reliable_jobs.worker.handlers.isolated_runner import IsolatedRunner
from django_reliable_jobs.worker.handlers.runner import Runner
from django_reliable_jobs.worker.processes.supervisor_line import SupervisorLine
from django_reliable_jobs.worker.shared_state import SharedState

logger = logging.getLogger("django_reliable_jobs.worker")

#: From this many losses on a job runs in a child process.
LOSSES_TO_ISOLATE = 2


class Slot(threading.Thread):
    """One thread that runs attempts, one at a time; an isolated one in a child process that it keeps for the next."""

    def __init__(self, pool: SlotPool, number: int) -> None:
        super().__init__(name=f"slot-{number}", daemon=True)
        self.pool = pool
        self.current: tuple[Attempt, JobDefinition] | None = None
        self.written_off = False
        self._runner: Runner | None = None
        self._child: IsolatedRunner | None = None

    def run(self) -> None:
        self._runner = Runner(self.name, self.pool.alias, self.pool.worker)
        while not self.written_off and (work := self.pool.ready.get()) is not None:
            if not self.pool.begins(*work):
                continue
            try:
                self._run_one(*work)
            except Exception as error:  # whatever it is (no more threads, no more files): the slot is not lost
                logger.exception(
                    "%s: internal error while running %s #%s", self.name, work[0].lease.name, work[0].lease.job_id
                )
                if work[0].leave(self):
                    self.current = None
                    self.pool.finished(work[0], executor.outcome_of_error(*work, error), settled=False)
        self._runner.close()
        if self._child is not None:
            self._child.close()

    def _run_one(self, attempt: Attempt, definition: JobDefinition) -> None:
        runner = self._runner_for(attempt, definition)
        self.current = (attempt, definition)
        attempt.start()
        if attempt.stop_kind is LeaseLost:  # while it waited for a slot; if the row is still ours, nothing has begun
            outcome, settled = UNBEGUN, False
        else:
            if self.pool.shared is not None:
                attempt.begun_word = self.pool.shared.begin(attempt.key.token, attempt.key.job_id)
            outcome, settled = runner.run(attempt, definition)
        if not attempt.has_left:
            attempt.decide(outcome, settled=settled)
        attempt.came_back = time.monotonic()
        attempt.took = attempt.came_back - (attempt.started or 0.0)
        tidied = runner.tidy()  # the slot is not free, and under the watchdog, until it is ready for another
        if not attempt.leave(self):
            self.written_off = True  # whoever has written this thread off may not have come to say so yet
            return
        self.current = None
        self.pool.finished(attempt, outcome, settled=settled)
        if not tidied:
            self.pool.written_off += 1

    def _runner_for(self, attempt: Attempt, definition: JobDefinition) -> Runner | IsolatedRunner:
        """A job that was lost twice may be what kills its workers: it runs in a child too (protocol 7)."""
        assert self._runner is not None
        if definition.isolation == "thread" and attempt.lease.losses < LOSSES_TO_ISOLATE:
            return self._runner
        if self.pool.supervisor is None:
            log.not_isolated(attempt)
            return self._runner
        if self._child is None:
            self._child = IsolatedRunner(self.name, self.pool.supervisor)
        return self._child

    @property
    def isolated(self) -> bool:
        """Whether a child process has the attempt that is running."""
        return self._child is not None and self._child.running

    def force_stop(self, attempt: Attempt, *, final: bool) -> None:
        """From another thread: the handler was told to stop a while ago; `final`: its grace time is over."""
        if self._runner is not None:
            self._runner.force_stop(attempt)
        if self._child is not None and final:
            self._child.force_stop(attempt)

    def where(self) -> str:
        """Where the handler is just now."""
        return "" if self._runner is None or self.isolated else self._runner.where()


class SlotPool:
    """The slots of a worker, and the queue of attempts that wait for one.

    `finished` hands an attempt with its outcome to `report`, in the slot's thread. `occupied` are the attempts that
    sit in a slot or wait for one; it is changed by single set operations only, which are atomic in CPython.
    """

    def __init__(
        self,
        size: int,
        alias: str,
        worker: UUID,
        report: Callable[[Attempt], None],
        supervisor: SupervisorLine | None = None,
        shared: SharedState | None = None,
    ) -> None:
        self.size = size
        self.shared = shared
        self.alias = alias
        self.worker = worker
        self.report = report
        self.supervisor = supervisor
        self.ready: SimpleQueue[tuple[Attempt, JobDefinition] | None] = SimpleQueue()
        #: What a slot took from `ready` too late to begin it without asking the database.
        self.doubtful: SimpleQueue[tuple[Attempt, JobDefinition]] = SimpleQueue()
        #: When a slot last began something.
        self.begun_at = time.monotonic()
        self.occupied: set[Attempt] = set()
        self.slots: list[Slot] = []
        self.written_off = 0
        self._numbers = 0
        self._short = 0.0
        self._check_soon: Callable[[], object] = bool

    def ask_for_a_round(self, short: float, check_soon: Callable[[], object]) -> None:
        """Have `check_soon` called for each attempt whose timeout is less than so many seconds."""
        self._short, self._check_soon = short, check_soon

    def start(self) -> None:
        for _ in range(self.size):
            self._add()

    def _add(self) -> None:
        self._numbers += 1
        slot = Slot(self, self._numbers)
        self.slots.append(slot)
        slot.start()

    @property
    def free(self) -> int:
        return self.size - len(self.occupied)

    @property
    def busy(self) -> int:
        return min(self.size, len(self.occupied))

    def submit(self, attempt: Attempt, definition: JobDefinition) -> None:
        self.occupied.add(attempt)
        self.ready.put((attempt, definition))
        if attempt.lease.timeout is not None and attempt.lease.timeout < self._short:
            self._check_soon()

    def begins(self, attempt: Attempt, definition: JobDefinition) -> bool:
        """From a slot's thread: may it call the handler? Otherwise somebody else sees to the attempt."""
        now = time.monotonic()
        if now >= attempt.ask_at and attempt.is_open:
            self.doubtful.put((attempt, definition))
            self.report(attempt)  # undecided, which only wakes the engine
            return False
        if not attempt.begin():
            self.occupied.discard(attempt)
            return False
        self.begun_at = now
        if attempt.is_open:
            return True
        self.finished(attempt, UNBEGUN, settled=False)  # it was cancelled or lost before a slot had it
        return False

    def resume(self, *, accepting: bool) -> list[Attempt]:
        """What slots gave up as doubtful waits again, or is returned if the worker stops. For the engine, once it has asked."""
        refused: list[Attempt] = []
        for _ in range(self.doubtful.qsize()):
            work = self.doubtful.get_nowait()
            if work[0].outcome is None and accepting:
                self.ready.put(work)
            elif work[0].outcome is None:
                self.occupied.discard(work[0])
                refused.append(work[0])
        return refused

    def finished(self, attempt: Attempt, outcome: Outcome, *, settled: bool) -> None:
        """The handler came back. Its word counts unless somebody decided before."""
        self.occupied.discard(attempt)
        attempt.decide(outcome, settled=settled)
        self.report(attempt)

    def withdraw(self) -> list[Attempt]:
        """Take back the attempts that no slot has begun."""
        withdrawn: list[Attempt] = []
        for queue in (self.doubtful, self.ready):
            with suppress(Empty):
                while True:
                    work = queue.get_nowait()
                    if work is not None:
                        self.occupied.discard(work[0])
                        withdrawn.append(work[0])
        return [attempt for attempt in withdrawn if attempt.outcome is None]

    def write_off(self, slot: Slot, attempt: Attempt) -> bool:
        """The attempt's handler does not come back: a fresh thread takes the slot's place. False: it has come back after all."""
        if not attempt.leave("written off"):
            return False
        slot.written_off = True
        self.written_off += 1
        self.slots.remove(slot)
        self.occupied.discard(attempt)
        self.report(attempt)
        self._add()
        return True

    def kill_children(self) -> None:
        """Kill the child processes that run something now."""
        for slot in list(self.slots):
            work = slot.current
            if slot.isolated and work is not None:
                slot.force_stop(work[0], final=True)

    @property
    def has_children_at_work(self) -> bool:
        return any(slot.isolated for slot in list(self.slots))

    def close(self) -> None:
        """Let idle slots end; those that still run something are daemon threads and end with the process."""
        for _ in self.slots:
            self.ready.put(None)
