"""The watchdog: a hung handler never holds a slot longer than its timeout and the grace time (protocol 9).

At the deadline the handler is told to stop, and what it came to is settled then, whether it obeys or not: its row
leaves RUNNING, and whatever the late thread does to the job is refused by the token. A thread that does not come back
within the grace time is written off, and a fresh one takes its place.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django_reliable_jobs import conf
from django_reliable_jobs.connections.statement_deadline import StatementDeadline
from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.errors import DeadlineExceeded, StopHandler
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.values.outcome import ErrorRecord
from django_reliable_jobs.worker import log
from django_reliable_jobs.worker.handlers import executor
from django_reliable_jobs.worker.handlers.slots import Slot, SlotPool
from django_reliable_jobs.worker.leases.heartbeat import Heartbeat
from django_reliable_jobs.worker.shared_state import HEARTBEAT, WATCHDOG

logger = logging.getLogger("django_reliable_jobs.worker")

#: Seconds between two rounds; a deadline is noticed within this.
ROUND = 0.1
#: The same while there is nothing to look at. A job with a shorter timeout than that asks for a round at once.
IDLE_ROUND = 0.5
#: Seconds after which a coroutine that was cancelled at its await gets the exception raised in its thread.
FORCE_STOP_AFTER = 1.0
#: Seconds after which a heartbeat that was not answered no longer speaks for its leases: connecting may take longer.
UNANSWERED = 0.5
#: The heartbeat, whose waits are bounded by less than one lease, may stand still for so many.
HEARTBEAT_LEASES = 2
#: Seconds from the end of the heartbeat to that of the process, at least.
ENDING = 30.0


class Watchdog(threading.Thread):
    """Looks at every slot, at the heartbeat, and at the worker's own waiting statements. `grace` is in seconds."""

    def __init__(
        self,
        pool: SlotPool,
        heartbeat: Heartbeat,
        statement_deadline: StatementDeadline,
        grace: float,
        written_off: Callable[[], None],
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.pool = pool
        self.heartbeat = heartbeat
        self.statement_deadline = statement_deadline
        self.shared = heartbeat.shared
        self.grace = grace
        self._written_off = written_off
        self._stopping = False
        #: The worker ends: it hands back itself, as the last thing it does, what does not stop.
        self.worker_ends = False
        self._check_soon = threading.Event()
        self._try = self._rounds = 0
        self._heartbeat_moves, self._heartbeat_still = 0, 0.0
        pool.ask_for_a_round(IDLE_ROUND, self._check_soon.set)

    def run(self) -> None:
        self.shared.join(WATCHDOG)
        while not self._stopping:
            self.shared.moved()
            quiet = not self.pool.occupied and not self.heartbeat.is_asking
            passed = IDLE_ROUND if quiet else ROUND
            if self._check_soon.wait(passed):
                self._check_soon.clear()
                passed = 0.0
            self._heartbeat_still += passed
            for look in (self.statement_deadline.cut_the_overdue, self._check_the_heartbeat):
                try:
                    look()
                except Exception as error:  # noqa: BLE001 - it is logged, and the round goes on
                    log.broken(f"watchdog: {look.__name__}", error)
            now = time.monotonic()
            for slot in list(self.pool.slots):
                self.shared.moved()  # one may hold us up for seconds, while a query of it is cancelled
                try:
                    self._look_at(slot, now)
                except Exception as error:  # noqa: BLE001 - it is logged, and the round goes on
                    log.broken(f"watchdog: looking at {slot.name}", error)
        self.shared.leave()

    def stop(self) -> None:
        self._stopping = True
        self._check_soon.set()

    def _check_the_heartbeat(self) -> None:
        """Rounds are counted, not seconds: after a stop of the whole process the answer to the next beat decides."""
        moves = self.shared.moves()[HEARTBEAT]
        if moves != self._heartbeat_moves:
            self._heartbeat_moves, self._heartbeat_still = moves, 0.0
        elif self._heartbeat_still >= self._heartbeat_may_rest():
            self.heartbeat.end_stuck(f"its heartbeat thread has not moved for {self._heartbeat_still:.0f} s")
        if not self.heartbeat.is_asking or self.heartbeat.tries != self._try:
            self._try, self._rounds = self.heartbeat.tries, 0
            return
        self._rounds += 1
        if self._rounds * ROUND >= UNANSWERED:
            self.heartbeat.give_up_the_overdue()

    def _heartbeat_may_rest(self) -> float:
        """Seconds. Once it has ended, the process is about to; the main thread may have been caught in its last log line."""
        leases = HEARTBEAT_LEASES * conf.current().lease
        return leases if HEARTBEAT in self.shared.running else max(leases, ENDING)

    def _look_at(self, slot: Slot, now: float) -> None:
        work = slot.current
        if work is None:
            return
        attempt, definition = work
        if attempt.deadline is not None and now >= attempt.deadline and attempt.stop_kind is None:
            where = slot.where()
            if attempt.stop(DeadlineExceeded):
                self._decide(attempt, definition, DeadlineExceeded, where)
        if attempt.came_back is not None and now - attempt.came_back >= self.grace:
            if self.pool.write_off(slot, attempt):
                logger.warning("the connections of %s cannot be put in order: it is written off", slot.name)
                self._written_off()
            return
        if attempt.stopped_at is None:
            return
        since = now - attempt.stopped_at
        if since >= min(FORCE_STOP_AFTER, self.grace):
            slot.force_stop(attempt, final=since >= self.grace)
        if since >= self.grace + (FORCE_STOP_AFTER if slot.isolated else 0.0) and not self.worker_ends:
            if attempt.outcome is None and attempt.stop_kind is not None:
                self._decide(attempt, definition, attempt.stop_kind, slot.where())
            if self.pool.write_off(slot, attempt):
                logger.warning(
                    "%s #%s does not stop: %s is written off", attempt.lease.name, attempt.lease.job_id, slot.name
                )
                self._written_off()

    def _decide(self, attempt: Attempt, definition: JobDefinition, kind: type[StopHandler], where: str) -> None:
        if issubclass(kind, DeadlineExceeded):
            message = f"the attempt ran longer than its timeout of {attempt.lease.timeout:g} s"
        else:
            message = f"the handler did not stop within {self.grace:g} s"
        if where:
            message += "; this is where it was"
        error = ErrorRecord(f"{kind.__module__}.{kind.__qualname__}", message, where)
        if attempt.decide(executor.stopped(attempt.lease, definition, kind, error)):
            self.pool.report(attempt)
