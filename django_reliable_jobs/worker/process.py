"""A worker: one process that runs jobs. Puts the parts together, and stops them in order (protocol 10).

Stopping. First nothing more is claimed, and what waits in memory for a slot is handed back. Running handlers get the
grace time to finish. Those that are left are told to stop and get a moment to obey; then they are handed back, no
attempt used, and the process ends. A second signal skips the waiting.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from uuid import UUID

from django.db import Error as DatabaseTrouble

from django_reliable_jobs import __version__, conf, outcome, stopping
from django_reliable_jobs.attempt import Attempt
from django_reliable_jobs.errors import LeaseLost
from django_reliable_jobs.outcome import Outcome
from django_reliable_jobs.store import presence
from django_reliable_jobs.store.connections import own_connection
from django_reliable_jobs.worker import exit_codes, journal
from django_reliable_jobs.worker.connections import pools_that_are_too_small
from django_reliable_jobs.worker.contact import Contact
from django_reliable_jobs.worker.deadlines import Watchdog
from django_reliable_jobs.worker.engine import Engine, Told
from django_reliable_jobs.worker.heart import Heart
from django_reliable_jobs.worker.isolation import Nursery
from django_reliable_jobs.worker.ledger import Ledger
from django_reliable_jobs.worker.listener import Listener
from django_reliable_jobs.worker.maintenance import DeadWorker, Maintenance
from django_reliable_jobs.worker.options import WorkerOptions
from django_reliable_jobs.worker.patience import Patience
from django_reliable_jobs.worker.prefetch import Prefetch, most_leases
from django_reliable_jobs.worker.rights import Rights
from django_reliable_jobs.worker.schema import wait_for_schema
from django_reliable_jobs.worker.shared_state import MAIN, SharedState
from django_reliable_jobs.worker.signals import install
from django_reliable_jobs.worker.slots import SlotPool

logger = logging.getLogger("django_reliable_jobs.worker")

#: Seconds that handlers get to end once they are told to stop at the end of the grace time.
OBEY = 1.0
#: Seconds that the last outcomes get to reach the database.
LAST_WORDS = 5.0

#: After so many stop exceptions the process is replaced even if it is never idle.
MOST_STOPS = 100

STOP = "stop"


class WorkerProcess:
    """`worker` is the id of this process start; `dead_workers` are siblings whose leases are taken back at once."""

    def __init__(
        self,
        options: WorkerOptions,
        worker: UUID,
        dead_workers: Sequence[DeadWorker] = (),
        nursery: Nursery | None = None,
        shared: SharedState | None = None,
    ) -> None:
        settings = conf.current()
        self._supervised = shared is not None
        self.shared = shared = shared or SharedState(most_leases(options.slots))
        self.options = options
        self.worker = worker
        self.commands: SimpleQueue[str] = SimpleQueue()
        self.recycle = False
        self._asked_to_stop = False
        self._at_once = False
        inbox: SimpleQueue[Attempt | Told | None] = SimpleQueue()
        self.inbox = inbox
        # A statement that takes half a lease is on a dead connection; what is left suffices to connect and heartbeat.
        self.patience = patience = Patience(settings.lease / 2, shared)
        contact = Contact(settings.lease)
        prefetch = Prefetch(settings.prefetch, options.slots)
        self.ledger = Ledger(options.alias, shared)
        self.pool = SlotPool(options.slots, options.alias, worker, inbox.put, nursery, shared)
        me = presence.Presence(
            worker,
            socket.gethostname()[:255],
            os.getpid(),
            __version__,
            str(options.queues)[:500],
            options.slots,
            release=settings.release or "",
        )
        self.heart = Heart(self.ledger, contact, patience, prefetch, me, lambda: self.pool.busy, shared)
        self.engine = Engine(
            worker, options, self.ledger, self.pool, self.heart, prefetch, patience, inbox, self.commands.put
        )
        self.watchdog = Watchdog(
            self.pool, self.heart, patience, options.grace, lambda: self.commands.put("written off")
        )
        self.maintenance = Maintenance(
            options.alias,
            worker,
            contact,
            patience,
            shared,
            self.engine.unknown,
            Rights(options.alias, me, self.heart.beat_soon),
            dead_workers,
        )
        self.listener = Listener(
            settings.listen_database or options.alias,
            worker,
            patience,
            lambda queue, priority: inbox.put(Told(queue, priority)),
            self.heart.beat_soon,
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
        if not wait_for_schema(self.options.alias, limit, self._told_within):
            return exit_codes.OK if self._asked_to_stop else exit_codes.BROKEN
        if not self._has_its_rights() and self.options.burst:
            return exit_codes.FAILURES
        if self.options.burst and self.maintenance.dead_workers:
            self.maintenance.take_back_first()
        # In a thread of somebody else's process (tests, an embedded worker) that process is not ours to end.
        self.heart.may_end_process = threading.current_thread() is threading.main_thread()
        self.shared.join(MAIN)
        self.pool.start()
        for thread in (self.heart, self.engine, self.watchdog, self.maintenance):
            thread.start()
        if conf.current().listen:
            self.listener.start()
        self._wait_for_the_end()
        self._stop()
        return self._exit_status()

    def _has_its_rights(self) -> bool:
        """Said before anything fails for want of them. A burst would go on for ever; others wait until they are given."""
        try:
            with own_connection(self.options.alias, "start"):
                return self.maintenance.rights.look()
        except DatabaseTrouble as error:
            journal.trouble("the look at the rights", error)
            return True

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
            if self._worn_out():
                self.recycle = True
                return

    def _worn_out(self) -> bool:
        """Whether a fresh process should take over: threads written off, many jobs done, too much memory."""
        lost = self.pool.written_off
        if lost and (lost >= self.pool.size or not self.pool.occupied):
            logger.warning("%d threads of this worker are written off: it makes way for a fresh process", lost)
            return True
        if self._may_be_damaged():
            logger.info("%d handlers were stopped by an exception: the worker process is replaced", stopping.raised())
            return True
        limit = self.options.max_jobs_per_process
        if limit is not None and self.engine.claimed_jobs >= limit:
            return True
        if self.options.max_rss is not None and _rss_mib() > self.options.max_rss:
            logger.warning("this worker uses more than %d MiB: it makes way for a fresh process", self.options.max_rss)
            return True
        return False

    def _may_be_damaged(self) -> bool:
        """A stop exception may have left a lock of any library taken: replace the process when that costs nothing."""
        if not self._supervised or self.options.burst or self.options.max_jobs is not None:
            return False
        return stopping.raised() >= (1 if not self.pool.occupied else MOST_STOPS)

    def _rest(self, seconds: float) -> None:
        """In the main thread, while it stops the worker."""
        self.shared.moved()
        time.sleep(seconds)

    def _stop(self) -> None:
        self.engine.accepting = False
        self.heart.me.stopping = True
        self.heart.beat_soon()
        self._hand_back(self.pool.withdraw(), outcome.UNBEGUN)
        until = time.monotonic() + self.options.grace
        if self.pool.occupied:
            logger.info(
                "stopping: %d jobs are running, they have %g s to finish", len(self.pool.occupied), self.options.grace
            )
        while self.pool.occupied and time.monotonic() < until and not self._at_once:
            self._rest(0.02)
        for attempt in list(self.pool.occupied):
            attempt.stop(LeaseLost)
        until = time.monotonic() + (OBEY / 5 if self._at_once else OBEY)
        while self.pool.occupied and time.monotonic() < until:
            self._rest(0.02)
        self._hand_back(self.pool.withdraw(), outcome.UNBEGUN)
        self._hand_back(list(self.pool.occupied), outcome.RELEASED)
        self.engine.stopping = True
        self.inbox.put(None)
        until = time.monotonic() + LAST_WORDS
        while not self.engine.ended.is_set() and time.monotonic() < until:
            self._rest(0.02)
        for thread in (self.heart, self.maintenance, self.listener):
            thread.stop()
        self.pool.close()
        self.shared.leave()
        self._say_goodbye()
        self.watchdog.stop()

    def _hand_back(self, attempts: Sequence[Attempt], what: Outcome) -> None:
        for attempt in attempts:
            attempt.decide(what)
            self.inbox.put(attempt)

    def _say_goodbye(self) -> None:
        if not self.engine.ended.is_set():
            logger.error("the last outcomes did not reach the database; their leases run out")
            return
        try:
            with own_connection(self.options.alias, "goodbye") as connection, self.patience.wait_for(connection):
                presence.gone(self.options.alias, [self.worker])
        except DatabaseTrouble as error:
            logger.debug("the worker's row stays until it is pruned: %s", error)

    def _exit_status(self) -> int:
        counts = self.ledger.counts
        logger.info(
            "worker %s ends: %s",
            self.worker,
            ", ".join(f"{n} {what.lower()}" for what, n in sorted(counts.items())) or "idle",
        )
        if self.engine.failed or not self.engine.ended.is_set():
            return exit_codes.BROKEN  # it may have left leases behind: whoever takes its place looks for them
        if self.options.burst and (counts["FAILED"] or counts["DEAD"]):
            return exit_codes.FAILURES
        return exit_codes.RECYCLE if self.recycle else exit_codes.OK


def _rss_mib() -> float:
    """Resident memory of this process in MiB; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, ValueError, IndexError):
        return 0.0
