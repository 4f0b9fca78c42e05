"""A worker: one process that runs jobs. Puts the parts together, and stops them in order (protocol 10).

Stopping. First nothing more is claimed, and what waits in memory for a slot is handed back. Running handlers get the
grace time to finish. Those that are left are told to stop and get a moment to obey; then they are handed back, no
attempt used, and the process ends. A second signal skips the waiting.

A handler that does not obey may go on while its job starts elsewhere. So children of isolated jobs are killed first, and
what such a thread runs is handed back last: all else is settled, said and flushed by then, and the process ends with the
answer to that statement.

Replacing. A worker that has run many jobs, or uses much memory, asks its supervisor, which starts another beside it.
Then it claims nothing more, hands back what has not begun, and waits for what runs, which only its timeouts bound. While
its own predecessor does that, a worker is not replaced: it goes on.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from uuid import UUID

from django.db import Error as DatabaseTrouble

from django_reliable_jobs import __version__, conf
from django_reliable_jobs.connections.own_connection import own_connection
from django_reliable_jobs.connections.statement_deadline import StatementDeadline
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.errors import LeaseLost
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.store import worker_row
from django_reliable_jobs.store.queues_with_work import discover, without_a_trace
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.outcome import Outcome
from django_reliable_jobs.worker import exit_codes, log
from django_reliable_jobs.worker.handlers.handler_connections import pools_that_are_too_small
from django_reliable_jobs.worker.handlers.slots import SlotPool
from django_reliable_jobs.worker.leases.database_contact import DatabaseContact
from django_reliable_jobs.worker.leases.engine import BURST_WAITS, Engine, WorkNotice
from django_reliable_jobs.worker.leases.heartbeat import Heartbeat
from django_reliable_jobs.worker.leases.held_leases import HeldLeases
from django_reliable_jobs.worker.leases.listener import Listener
from django_reliable_jobs.worker.leases.prefetch import Prefetch, most_leases
from django_reliable_jobs.worker.maintenance import token_sequence
from django_reliable_jobs.worker.maintenance.maintenance import DeadWorker, Maintenance
from django_reliable_jobs.worker.maintenance.rights import Rights
from django_reliable_jobs.worker.options import WorkerOptions
from django_reliable_jobs.worker.processes.flushing import flush, within
from django_reliable_jobs.worker.processes.supervisor_line import DRAIN, GO_ON, RECYCLE, SupervisorLine, dead_of, ran
from django_reliable_jobs.worker.processes.wait_for_schema import wait_for_schema
from django_reliable_jobs.worker.processes.wear import Wear
from django_reliable_jobs.worker.shared_state import MAIN, SharedState
from django_reliable_jobs.worker.signals import install
from django_reliable_jobs.worker.watchdog import Watchdog

logger = logging.getLogger("django_reliable_jobs.worker")

# What may pass after the grace time, in seconds; together it has to stay below the supervisor's OVERDUE.
#: Handlers end that are told to stop.
STOP_WAIT = 1.0
#: Killed children of isolated jobs are gone.
BURY = 0.5
#: The last outcomes reach the database.
FLUSH_WAIT = 3.0
#: The worker's own row goes; then the log reaches its file within FLUSH.
DELETE_ROW_WAIT = 1.0
#: The jobs of handlers that did not obey are handed back.
LAST_HAND_BACK = 2.0

#: Seconds between two looks at whether all that runs has ended: longer the longer it takes.
LOOK_EVERY = (0.02, 0.5)
#: Seconds to wait for the supervisor's answer before a worker goes on that wants to be replaced.
ANSWER_WITHIN = 5.0

STOP = "stop"


class WorkerProcess:
    """`worker` is the id of this process start; `dead_workers` are siblings whose leases are taken back at once."""

    def __init__(
        self,
        options: WorkerOptions,
        worker: UUID,
        dead_workers: Sequence[DeadWorker] = (),
        supervisor: SupervisorLine | None = None,
        shared: SharedState | None = None,
    ) -> None:
        settings = conf.current()
        self.shared = shared = shared or SharedState(most_leases(options.slots))
        self.options = options
        self.worker = worker
        self.commands: SimpleQueue[str] = SimpleQueue()
        self.supervisor = supervisor
        #: A fresh process takes over, or is to.
        self.recycle = False
        #: The output was flushed: whoever ends the process need not do it again.
        self.flushed = False
        self._asked_to_stop = False
        self._at_once = False
        inbox: SimpleQueue[Attempt | WorkNotice | None] = SimpleQueue()
        self.inbox = inbox
        # A statement that takes half a lease is on a dead connection; what is left suffices to connect and heartbeat.
        self.statement_deadline = statement_deadline = StatementDeadline(settings.lease / 2, shared.moved, log.cut)
        contact = DatabaseContact(settings.lease)
        prefetch = Prefetch(settings.prefetch, options.slots)
        self.held_leases = HeldLeases(options.alias, shared, worker)
        self.pool = SlotPool(options.slots, options.alias, worker, inbox.put, supervisor, shared)
        me = worker_row.WorkerState(
            worker,
            socket.gethostname()[:255],
            os.getpid(),
            __version__,
            str(options.queues)[:500],
            options.slots,
            release=settings.release or "",
        )
        self.heartbeat = Heartbeat(
            self.held_leases, contact, statement_deadline, prefetch, me, lambda: self.pool.busy, shared
        )
        self.engine = Engine(
            worker,
            options,
            self.held_leases,
            self.pool,
            self.heartbeat,
            prefetch,
            statement_deadline,
            inbox,
            self.commands.put,
        )
        self.wear = Wear(options, self.held_leases, self.pool, supervised=supervisor is not None)
        self.watchdog = Watchdog(
            self.pool, self.heartbeat, statement_deadline, options.grace, lambda: self.commands.put("written off")
        )
        self.maintenance = Maintenance(
            options.alias,
            worker,
            contact,
            statement_deadline,
            shared,
            self.engine.unknown,
            Rights(options.alias, me, self.heartbeat.beat_soon),
            dead_workers,
        )
        self.listener = Listener(
            settings.listen_database or options.alias,
            worker,
            statement_deadline,
            lambda queue, priority: inbox.put(WorkNotice(queue, priority)),
            self.heartbeat.beat_soon,
        )

    def run(self) -> int:
        """Work until told to stop; the exit status."""
        logger.info(
            "worker %s: %s:%s, %d slots, %s", self.worker, socket.gethostname(), os.getpid(), self.options.slots,
            self.options.queues,
        )  # fmt: skip
        for alias, most in pools_that_are_too_small(self.options.slots):
            logger.warning(
                'the pool of the database %r has at most %d connections, and this process has %d slots: handlers wait for one'
                ' another. Give its OPTIONS["pool"] a max_size of at least the slots, or leave the pool out',
                alias, most, self.options.slots,
            )  # fmt: skip
        limit = float(conf.current().migrate["LOCK_TIMEOUT"])
        if self.options.burst:
            limit = min(limit or BURST_WAITS, BURST_WAITS)
        if not wait_for_schema(self.options.alias, limit, self._told_within):
            if self._asked_to_stop:
                return exit_codes.OK
            return exit_codes.NOT_READY if self.options.burst else exit_codes.BROKEN
        if not self._has_its_rights() and self.options.burst:
            return exit_codes.FAILURES
        if not token_sequence.in_step(self.options.alias):
            return exit_codes.BROKEN
        if self.options.burst and self.maintenance.dead_workers:
            self.maintenance.take_back_first()
        # In a thread of somebody else's process (tests, an embedded worker) that process is not ours to end.
        self.heartbeat.may_end_process = threading.current_thread() is threading.main_thread()
        self.shared.join(MAIN)
        self.pool.start()
        for thread in (self.heartbeat, self.engine, self.watchdog, self.maintenance):
            thread.start()
        if conf.current().listen:
            self.listener.start()
        self._wait_for_the_end()
        self._stop()
        return self._exit_status()

    def _has_its_rights(self) -> bool:
        """What is missing is said before anything fails for want of it. A burst would go on for ever; others wait."""
        try:
            with own_connection(self.options.alias, "start"):
                has_them = self.maintenance.rights.look()
                if has_them:
                    log.unknown_queues(self._unknown_queues())
                return has_them
        except DatabaseTrouble as error:
            log.trouble("the look at rights and queues", error)
            return True

    def _unknown_queues(self) -> list[str]:
        """Queues that were asked for, and that nothing else names: most likely they are misspelt."""
        asked = (self.options.queues.only or frozenset()) | self.options.queues.exclude
        declared = registry.queues() | set(conf.current().queues)
        return without_a_trace(self.options.alias, asked - declared) if asked - declared else []

    def _told_within(self, seconds: float) -> bool:
        """Wait; whether somebody asked to stop."""
        with suppress(Empty):
            self.commands.get(timeout=seconds)
        return self._asked_to_stop

    def handle_signals(self, *, supervised: bool = False) -> None:
        """SIGTERM and SIGINT ask to stop. Only in the main thread; elsewhere `request_stop` does the same.

        Asked again, the worker skips the grace time. Below a supervisor only SIGQUIT says so, which it sends: one Ctrl-C
        reaches every process of a terminal and comes from the supervisor too, and that is one wish.
        """
        if threading.current_thread() is not threading.main_thread():
            logger.warning("not in the main thread: signals are left alone, stop this worker with request_stop()")
            return
        if supervised:
            install((signal.SIGTERM, signal.SIGINT), self.request_stop)
            install((signal.SIGQUIT,), lambda: self.request_stop(at_once=True))
        else:
            install((signal.SIGTERM, signal.SIGINT), lambda: self.request_stop(at_once=self._asked_to_stop))

    def request_stop(self, *, at_once: bool = False) -> None:
        """Stop in order; `at_once`: without the grace time. Safe in a signal handler, and in any thread."""
        self._asked_to_stop = True
        self._at_once = self._at_once or at_once
        self.commands.put(STOP)

    def hear(self, line: str) -> None:
        """What the supervisor says."""
        if (dead := dead_of(line)) is not None:
            self.maintenance.has_died(DeadWorker(*dead))
        else:
            self.commands.put(line)

    def _wait_for_the_end(self) -> None:
        round_ = min(1.0, conf.current().heartbeat / 2)
        while not self.engine.ended.is_set():
            self.shared.moved()
            try:
                command = self.commands.get(timeout=round_)
            except Empty:
                command = ""
            if command == STOP:
                return
            if command == GO_ON:
                self._go_on()
            elif command == DRAIN or (self.wear.worn_out and self._may_be_replaced()):
                self.recycle = True
                return

    def _may_be_replaced(self) -> bool:
        """Whether to stop for it now. Otherwise the supervisor is asked, and the worker goes on until it agrees."""
        if self.options.burst and not self._work_is_due():
            self._go_on()  # a burst is over when nothing is due: no fresh process for nothing
            return False
        if self.supervisor is None or self.options.max_jobs is not None:
            return True  # one after the other: nobody can start another, or it has to know how many jobs are left
        if time.monotonic() - (self.wear.since or 0.0) > ANSWER_WITHIN:
            self._go_on()
        self.supervisor.say(RECYCLE)
        return False

    def _go_on(self) -> None:
        self.engine.recycle_after = None
        self.inbox.put(None)

    def _work_is_due(self) -> bool:
        try:
            with own_connection(self.options.alias, "look") as connection, self.statement_deadline.wait_for(connection):
                return any(
                    work.due_in <= 0 and work.queue in self.options.queues for work in discover(self.options.alias)
                )
        except DatabaseTrouble:
            return True

    def _stop(self) -> None:
        self.engine.accepting = False
        self.heartbeat.me.stopping = True
        self.heartbeat.beat_soon()
        self._withdraw()
        if self.recycle:
            self._drain()
        if self.pool.occupied:
            self._cut()
        self._end()

    def _withdraw(self) -> None:
        """Hand back what waits for a slot."""
        for attempt in self.pool.withdraw():
            self._hand_back(attempt, outcome.UNBEGUN)

    def _drain(self) -> None:
        """Wait for what runs, and for the database to record it, however long that takes; only a request to stop ends this."""
        if self.pool.occupied:
            logger.info("a fresh process has taken over; %d jobs run here to their end", len(self.pool.occupied))
        began = time.monotonic()
        while not (self.held_leases.nothing_held or self._asked_to_stop or self.engine.ended.is_set()):
            self.shared.moved()
            with suppress(Empty):
                self.commands.get(timeout=min(LOOK_EVERY[1], max(LOOK_EVERY[0], (time.monotonic() - began) / 10)))
            self._withdraw()  # a claim that was under way

    def _cut(self) -> None:
        """Running handlers get the grace time, and a moment to obey when they are told to stop."""
        logger.info(
            "stopping: %d jobs are running, they have %g s to finish", len(self.pool.occupied), self.options.grace
        )
        self._wait(lambda: not self.pool.occupied or self._at_once, self.options.grace)
        self.watchdog.worker_ends = True
        for attempt in list(self.pool.occupied):
            attempt.stop(LeaseLost)
        self._wait(lambda: not self.pool.occupied, STOP_WAIT / 5 if self._at_once else STOP_WAIT)
        self.pool.kill_children()
        self._wait(lambda: not self.pool.has_children_at_work, BURY)
        self._withdraw()

    def _end(self) -> None:
        """Settle what has ended, delete the worker's row, and hand back last what does not."""
        left = list(self.pool.occupied)
        if not left:
            self._let_the_engine_end()
        keys = {attempt.key for attempt in left}
        self._wait(lambda: self.engine.ended.is_set() or keys.issuperset(list(self.held_leases.held)), FLUSH_WAIT)
        settled = keys.issuperset(list(self.held_leases.held))
        if settled and not left:
            self._wait(self.engine.ended.is_set, FLUSH_WAIT)
        for thread in (self.heartbeat, self.maintenance, self.listener):
            thread.stop()
        self.pool.close()
        self.shared.leave()
        self._wait(lambda: not self.heartbeat.is_alive(), DELETE_ROW_WAIT / 2)  # it would write the row again
        if settled:
            within(DELETE_ROW_WAIT, self._delete_worker_row)
        else:
            logger.error("the last outcomes did not reach the database; their leases run out")
        counts = ", ".join(f"{n} {what.lower()}" for what, n in sorted(self.held_leases.counts.items()))
        logger.info("worker %s ends: %s", self.worker, counts or "idle")
        if left:
            logger.warning("%d handlers did not stop: their jobs are handed back as the process ends", len(left))
            flush()
            self.flushed = True
            for attempt in left:
                self._hand_back(attempt, outcome.RELEASED)
            self._let_the_engine_end()
            self._wait(self.engine.ended.is_set, LAST_HAND_BACK)
        self.watchdog.stop()

    def _let_the_engine_end(self) -> None:
        self.engine.stopping = True
        self.inbox.put(None)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not condition() and time.monotonic() < until:
            self.shared.moved()
            time.sleep(0.02)

    def _hand_back(self, attempt: Attempt, what: Outcome) -> None:
        attempt.decide(what)
        self.inbox.put(attempt)

    def _delete_worker_row(self) -> None:
        try:
            with (
                own_connection(self.options.alias, "worker row") as connection,
                self.statement_deadline.wait_for(connection),
            ):
                worker_row.gone(self.options.alias, [self.worker])
        except DatabaseTrouble as error:
            logger.debug("the worker's row stays until it is pruned: %s", error)

    def _exit_status(self) -> int:
        counts = self.held_leases.counts
        if self.supervisor is not None and self.options.max_jobs is not None:
            self.supervisor.say(ran(self.held_leases.begun_in_all()))
        if self.engine.failed or not self.engine.ended.is_set():
            return exit_codes.BROKEN  # it may have left leases behind: whoever takes its place looks for them
        failures = self.options.burst and bool(counts["FAILED"] or counts["DEAD"])
        if self.recycle and not (self.options.burst and not self._asked_to_stop and not self._work_is_due()):
            return exit_codes.RECYCLE_AFTER_FAILURES if failures else exit_codes.RECYCLE
        return exit_codes.FAILURES if failures else exit_codes.OK
