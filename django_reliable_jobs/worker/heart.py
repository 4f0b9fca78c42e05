"""The heart: extends the worker's leases, hears of cancel requests, and knows when a lease is lost (protocol 6).

It beats in a thread and on a connection of its own, so that neither handlers nor the engine's exchange can hold it
up. The engine lends it a beat of its own after a lost connection, before anything else is done.

A lease that is not extended in one beat is read again: locked by somebody is no loss; RUNNING under another token is.
When no beat has gone through for a whole lease, others may own the jobs by now: the handlers are told to stop. After
a stop of the whole process (SIGSTOP) the heart beats first and judges by the answer, since an expired lease that
nobody has reaped may still be extended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django.db import Error as DatabaseTrouble
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs import conf, registry
from django_reliable_jobs.errors import JobCancelled, LeaseLost
from django_reliable_jobs.store import presence
from django_reliable_jobs.store.connections import own_connection
from django_reliable_jobs.store.exchange import Standing, standings
from django_reliable_jobs.store.heartbeat import Held, heartbeat
from django_reliable_jobs.worker import journal
from django_reliable_jobs.worker.contact import Contact
from django_reliable_jobs.worker.ledger import Ledger
from django_reliable_jobs.worker.patience import Patience
from django_reliable_jobs.worker.prefetch import Prefetch

logger = logging.getLogger("django_reliable_jobs.worker")

#: Seconds between two tries while the database is out of reach.
RETRY = 0.5


class Heart(threading.Thread):
    """See the module's docstring. `busy` says how many slots are in use."""

    def __init__(
        self, ledger: Ledger, contact: Contact, patience: Patience, prefetch: Prefetch, me: presence.Presence,
        busy: Callable[[], int],
    ) -> None:  # fmt: skip
        super().__init__(name="heart", daemon=True)
        self.ledger = ledger
        self.contact = contact
        self.patience = patience
        self.prefetch = prefetch
        self.me = me
        self.busy = busy
        #: How many beats there were, and whether one is under way; the watchdog sees by them that one hangs.
        self.tries = 0
        self.is_asking = False
        self._wake = threading.Event()
        self._stopping = False

    def run(self) -> None:
        settings = conf.current()
        with own_connection(self.ledger.alias, "heart") as connection:
            while not self._stopping:
                self.tries += 1
                self.is_asking = True
                try:
                    self.beat(connection)
                    self._show(connection)
                    self.contact.made()
                    pause = settings.heartbeat
                except DatabaseTrouble as error:
                    journal.trouble("a heartbeat", error)
                    self.contact.lost()
                    connection.close()
                    self.give_up_the_overdue()
                    pause = min(RETRY, settings.heartbeat)
                except Exception:
                    logger.exception("a heartbeat failed")
                    pause = RETRY
                self.is_asking = False
                self._wake.wait(pause)
                self._wake.clear()

    def beat(self, connection: BaseDatabaseWrapper) -> None:
        """Extend all leases. Raises what the database raises."""
        asked_at = time.monotonic()
        lease = conf.current().lease
        attempts = list(self.ledger.held.values())
        news = [Held(attempt.key, attempt.take_progress()) for attempt in attempts]
        try:
            with self.patience.wait_for(connection):
                extended = heartbeat(self.ledger.alias, lease, news)
                missing = [key for key, _ in news if key not in extended]
                found = standings(self.ledger.alias, missing)
        except BaseException:
            for attempt, (_, progress) in zip(attempts, news, strict=True):
                attempt.progress = attempt.progress or progress
            raise
        if attempts:
            self.contact.made()
        for attempt in attempts:
            key = attempt.key
            if key in extended:
                attempt.safe_until = asked_at + lease
                if extended[key]:
                    attempt.stop(JobCancelled)
            elif found[key] is Standing.LOST and attempt.outcome is None and attempt.stop(LeaseLost):
                logger.warning("%s #%s: its lease is lost, the handler is told to stop", attempt.lease.name, key.job_id)

    def beat_soon(self) -> None:
        """Somebody asked to cancel a job of this worker, or its free slots have changed."""
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def _show(self, connection: BaseDatabaseWrapper) -> None:
        self.me.busy = self.busy()
        self.me.names_digest = registry.known().digest
        with self.patience.wait_for(connection):
            self.prefetch.free_elsewhere = presence.seen(self.ledger.alias, self.me, 3 * conf.current().heartbeat)

    def give_up_the_overdue(self) -> None:
        """Tell the handlers to stop whose leases were not extended for a whole lease."""
        now = time.monotonic()
        for attempt in list(self.ledger.held.values()):
            if now > attempt.safe_until and attempt.stop(LeaseLost):
                logger.warning(
                    "%s #%s: no heartbeat went through for a whole lease, the handler is told to stop",
                    attempt.lease.name, attempt.lease.job_id,
                )  # fmt: skip
