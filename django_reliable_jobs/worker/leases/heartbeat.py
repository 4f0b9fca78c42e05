"""The heartbeat: extends the worker's leases, hears of cancel requests, and knows when a lease is lost (protocol 6).

It beats in a thread and on a connection of its own, so that neither handlers nor the engine's exchange can hold it
up; so it needs proof that the others still go on (`progress`). The engine lends it a beat of its own after a lost
connection, before anything else is done.

A lease that is not extended in one beat is read again: locked by somebody is no loss; RUNNING under another token is.
When no beat has gone through for a whole lease, others may own the jobs by now: the handlers are told to stop. After
a stop of the whole process (SIGSTOP) the heartbeat beats first and judges by the answer, since an expired lease that
nobody has reaped may still be extended.

Its thread takes no lock that a handler could hold: it logs through a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import Error as DatabaseTrouble
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs import conf
from django_reliable_jobs.connections.own_connection import own_connection
from django_reliable_jobs.connections.statement_deadline import StatementDeadline
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.errors import JobCancelled, LeaseLost
from django_reliable_jobs.store import worker_row
from django_reliable_jobs.store.exchange import RowState, reread
from django_reliable_jobs.store.heartbeat import Held, heartbeat
from django_reliable_jobs.values.elapsed import elapsed
from django_reliable_jobs.worker import log
from django_reliable_jobs.worker.leases.database_contact import DatabaseContact
from django_reliable_jobs.worker.leases.held_leases import HeldLeases
from django_reliable_jobs.worker.leases.prefetch import Prefetch
from django_reliable_jobs.worker.leases.progress import Look, ProgressWatch, end_process
from django_reliable_jobs.worker.log_thread import LogThread
from django_reliable_jobs.worker.retry_pause import retry_pause
from django_reliable_jobs.worker.shared_state import HEARTBEAT, SharedState

logger = logging.getLogger("django_reliable_jobs.worker")

#: Seconds between two tries while the database is out of reach: doubled from the first to the second.
RETRY = (0.5, 5.0)


class Heartbeat(threading.Thread):
    """See the module's docstring. `busy` says how many slots are in use."""

    def __init__(
        self, held_leases: HeldLeases, contact: DatabaseContact, statement_deadline: StatementDeadline, prefetch: Prefetch,
        me: worker_row.WorkerState, busy: Callable[[], int], shared: SharedState,
    ) -> None:  # fmt: skip
        super().__init__(name="heartbeat", daemon=True)
        self.held_leases = held_leases
        self.contact = contact
        self.statement_deadline = statement_deadline
        self.prefetch = prefetch
        self.me = me
        self.busy = busy
        #: How many beats there were, and whether one is under way; the watchdog sees by them that one hangs.
        self.tries = 0
        self.is_asking = False
        self.shared = shared
        self.progress = ProgressWatch(shared, conf.current().lease, conf.current().heartbeat)
        #: Whether the process ends when a part of it stands still. Not where it is somebody else's.
        self.may_end_process = True
        self._log = LogThread("heartbeat-log")
        self._said_stuck = False
        self._wake = threading.Event()
        self._stopping = False

    def run(self) -> None:
        settings = conf.current()
        self.shared.join(HEARTBEAT)
        self._log.start()
        failures = 0
        with own_connection(self.held_leases.alias, "heartbeat") as connection:
            while not self._stopping:
                self.tries += 1
                self.is_asking = True
                self.shared.moved()
                look = self.progress.look()
                try:
                    self.beat(connection, look)
                    self.contact.made()
                    self._show(connection)
                    pause = settings.heartbeat
                    if failures:
                        failures = 0
                        self._log.say(log.database_back)
                    if reason := self.progress.went_through(look):
                        self.end_stuck(reason)
                except DatabaseTrouble as error:
                    failures += 1
                    if log.is_connection_trouble(error):
                        self._log.say(log.database_trouble, failures, error)
                    else:
                        self._log.say(log.trouble, "a heartbeat", error)
                    self.contact.lost()
                    connection.close()
                    self.give_up_the_overdue()
                    pause = retry_pause(failures, RETRY[0], min(RETRY[1], settings.heartbeat))
                except Exception as error:  # noqa: BLE001 - the next one may go well
                    self._log.say(log.broken, "a heartbeat", error)
                    failures += 1
                    pause = retry_pause(failures, RETRY[0], min(RETRY[1], settings.heartbeat))
                self.is_asking = False
                self.shared.moved()
                self._wake.wait(pause)
                self._wake.clear()
        self.shared.leave()
        self._log.stop()

    def end_stuck(self, reason: str) -> None:
        """A part of the process stands still: the process ends, and whoever started it hands its leases back."""
        if self.may_end_process:
            end_process(self.me.worker, reason)
        elif not self._said_stuck:
            self._said_stuck = True
            self._log.say(logger.error, "worker %s: %s; its leases are not extended any more", self.me.worker, reason)

    def beat(self, connection: BaseDatabaseWrapper, look: Look | None = None) -> None:
        """Extend all leases, if the worker goes on. Raises what the database raises."""
        may_extend = (look or self.progress.look()).may_extend
        asked_at = elapsed()
        lease = conf.current().lease
        attempts = list(self.held_leases.held.values())
        news = [Held(attempt.key, attempt.take_progress()) for attempt in attempts]
        try:
            with self.statement_deadline.wait_for(connection):
                extended = heartbeat(self.held_leases.alias, lease, news, self.me.worker) if may_extend else {}
                missing = [key for key, _ in news if key not in extended]
                found = reread(self.held_leases.alias, missing, self.me.worker)
        except BaseException:
            for attempt, (_, progress) in zip(attempts, news, strict=True):
                attempt.progress = attempt.progress or progress
            raise
        if attempts:
            self.contact.made()
        for attempt, (_, progress) in zip(attempts, news, strict=True):
            key = attempt.key
            if not may_extend:
                attempt.progress = attempt.progress or progress
            if key in extended:
                attempt.safe_until = asked_at + lease
                if extended[key]:
                    attempt.stop(JobCancelled)
            elif found[key] is RowState.LOST and attempt.outcome is None and attempt.stop(LeaseLost):
                text = "%s #%s: its lease is lost, the handler is told to stop"
                self._log.say(logger.warning, text, attempt.lease.name, key.job_id)

    def beat_soon(self) -> None:
        """Somebody asked to cancel a job of this worker, or its free slots have changed."""
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def _show(self, connection: BaseDatabaseWrapper) -> None:
        self.me.busy = self.busy()
        self.me.names_digest = registry.known().digest
        with self.statement_deadline.wait_for(connection):
            asked_at = elapsed()
            answer = worker_row.seen(self.held_leases.alias, self.me, 3 * conf.current().heartbeat)
        self.prefetch.free_elsewhere = answer.free_elsewhere
        if step := self.contact.read_clock(answer.clock, asked_at):
            text = "the database's clock has gone %.0f s forward: nothing is reaped until all workers have had a lease's time"
            self._log.say(logger.warning, text, step)

    def give_up_the_overdue(self) -> None:
        """Tell the handlers to stop whose leases were not extended for a whole lease."""
        now = elapsed()
        for attempt in list(self.held_leases.held.values()):
            if now > attempt.safe_until and attempt.stop(LeaseLost):
                text = "%s #%s: no heartbeat went through for a whole lease, the handler is told to stop"
                self._log.say(logger.warning, text, attempt.lease.name, attempt.lease.job_id)
