"""Cuts a connection on which a statement of the worker has been waiting for too long.

A half-open connection gives neither data nor an error, and a frozen proxy even answers TCP keepalives: only the time
that a statement takes tells. The worker's own statements wait for no lock and take milliseconds, so one that takes
`limit` seconds is on a dead connection (or a server that is of no use): its socket is shut down, the thread that
waits gets an error and connects again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.store.connections import cut

logger = logging.getLogger("django_reliable_jobs.worker")


class Patience:
    """The statements under way in this process' own threads."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._waiting: dict[int, tuple[float, BaseDatabaseWrapper]] = {}

    @contextmanager
    def wait_for(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        me = threading.get_ident()
        self._waiting[me] = (time.monotonic(), connection)
        try:
            yield
        finally:
            self._waiting.pop(me, None)

    def cut_the_overdue(self) -> None:
        """Called by the watchdog, again and again."""
        now = time.monotonic()
        for me, (started, connection) in list(self._waiting.items()):
            if now - started > self.limit and self._waiting.get(me, (0.0,))[0] == started:
                if connection.connection is not None:  # else it is connecting, which has a time limit of its own
                    logger.warning("no answer from the database for %.0f s, the connection is cut", now - started)
                    cut(connection)
                self._waiting[me] = (now, connection)
