"""Wake-ups: LISTEN on a direct connection of its own (protocol 11).

A notification only saves waiting: the slow poll runs beside it and a lost one costs at most POLL. So nothing here is
trusted. Behind a transaction pooler a LISTEN is silently given to somebody else's session; that is found out before
it is relied on, by comparing the process id of the start-up packet with `pg_backend_pid()`. A connection can also go
deaf (a frozen proxy, a dropped NAT entry): the listener notifies itself now and then, and connects again when it does
not hear it.
"""

from __future__ import annotations

import logging
import selectors
import threading
import time
from collections.abc import Callable
from uuid import UUID

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.connections.own_connection import goes_through_a_pooler, own_connection
from django_reliable_jobs.connections.statement_deadline import StatementDeadline
from django_reliable_jobs.store.notify import CHANNEL
from django_reliable_jobs.values.log_limit import LogLimit
from django_reliable_jobs.worker.retry_pause import retry_pause

logger = logging.getLogger("django_reliable_jobs.worker")

#: Seconds between two probes, and how long one may take.
PROBE_EVERY = 10.0
PROBE_PATIENCE = 5.0
#: Seconds without news until it looks whether it is to stop or to probe, and notifications after which it does too.
NAP = 1.0
AT_ONCE = 100
#: Seconds between two tries to connect.
RETRY = (0.5, 30.0)


class Listener(threading.Thread):
    """Calls `on_work(queue, priority)`, `on_work(None, 0)` for work anywhere, and `on_cancel()`; in its own thread."""

    def __init__(
        self, alias: str, worker: UUID, statement_deadline: StatementDeadline, on_work: Callable[[str | None, int], None],
        on_cancel: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(name="listener", daemon=True)
        self.alias = alias
        self.worker = worker
        self.statement_deadline = statement_deadline
        self.on_work = on_work
        self.on_cancel = on_cancel
        self._stopping = False
        self._probe = f"probe {worker}"
        self._told = False
        self._limit = LogLimit()

    def run(self) -> None:
        if connections[self.alias].vendor != "postgresql":
            return
        failures = 0
        with own_connection(self.alias, "listener") as connection:
            while not self._stopping:
                try:
                    if not self._listen(connection):
                        return
                    failures = 0
                except Exception as error:  # noqa: BLE001 - the poll goes on; try again
                    failures += 1
                    self._say_once("not listening for notifications, polling instead: %s", error)
                connection.close()
                time.sleep(retry_pause(failures + 1, *RETRY))

    def stop(self) -> None:
        self._stopping = True

    def _listen(self, connection: BaseDatabaseWrapper) -> bool:
        """Listen until the connection fails (True, or an exception); False when listening cannot work here."""
        with self.statement_deadline.wait_for(connection):
            connection.ensure_connection()
            raw: psycopg.Connection = connection.connection
            if goes_through_a_pooler(raw):
                logger.warning(
                    "the database alias %r goes through a pooler, where LISTEN does not work: polling instead. Set"
                    ' RELIABLE_JOBS["LISTEN_DATABASE"] to an alias that goes straight to PostgreSQL.',
                    self.alias,
                )
                return False
            raw.execute(f'LISTEN "{CHANNEL}"')
        self.on_work(None, 0)  # what was enqueued before the LISTEN is found by a look
        sent_at, heard = 0.0, True
        # psycopg's own wait looks up ten times a second, which was a third of what an idle worker costs.
        with selectors.DefaultSelector() as selector:
            selector.register(raw.fileno(), selectors.EVENT_READ)
            while not self._stopping:
                now = time.monotonic()
                if not heard and now - sent_at > PROBE_PATIENCE:
                    self._say_once("notifications do not arrive (a probe was not heard), connecting again%s", "")
                    return True
                if heard and now - sent_at > PROBE_EVERY:
                    with self.statement_deadline.wait_for(connection):
                        raw.execute("SELECT pg_notify(%s, %s)", (CHANNEL, self._probe))
                    sent_at, heard = now, False
                for notification in raw.notifies(timeout=0, stop_after=AT_ONCE):
                    if notification.payload == self._probe:
                        heard = True
                        self._heard()
                    else:
                        self._act_on(notification.payload)
                selector.select(NAP)
        return True

    def _act_on(self, payload: str) -> None:
        kind, _, rest = payload.partition(" ")
        if kind == "work":
            queue, _, priority = rest.rpartition(" ")
            if queue and priority.lstrip("-").isdecimal():
                self.on_work(queue, int(priority))
            else:
                self.on_work(None, 0)
        elif kind == "cancel" and rest == str(self.worker):
            self.on_cancel()

    def _say_once(self, message: str, *args: object) -> None:
        if not self._told and self._limit.due("listener"):
            self._told = True
            logger.warning(message, *args)

    def _heard(self) -> None:
        if self._told:
            self._told = False
            logger.warning("notifications arrive again")
