"""Cuts a connection on which a statement of the worker has been waiting for too long.

A half-open connection gives neither data nor an error, and a frozen proxy even answers TCP keepalives: only the time
that a statement takes tells. The worker's own statements wait for no lock and take milliseconds, so one that takes
`limit` seconds is on a dead connection (or a server that is of no use): its socket is shut down, the thread that
waits gets an error and connects again. One look is not enough: where the process itself stood still (a C call of a
handler that keeps the interpreter, SIGSTOP), the answer may be there, and its thread reads it before the next look.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.connections.own_connection import cancel_and_cut
from django_reliable_jobs.worker import log
from django_reliable_jobs.worker.shared_state import SharedState

#: So many times its limit a thread may take to connect before it counts as standing still.
CONNECTING = 10


class StatementDeadline:
    """The statements under way in this process' own threads. Each is a move of its thread when it begins and when it ends."""

    def __init__(self, limit: float, shared: SharedState | None = None) -> None:
        self.limit = limit
        self._shared = shared
        self._waiting: dict[int, tuple[float, BaseDatabaseWrapper, int]] = {}
        #: By thread: the start of the wait that was found overdue by the last look.
        self._overdue: dict[int, float] = {}

    def moved(self) -> None:
        """The calling thread is about to wait for the database, or has waited."""
        if self._shared is not None:
            self._shared.moved()

    @contextmanager
    def wait_for(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        me = threading.get_ident()
        self._waiting[me] = (time.monotonic(), connection, 0)
        self.moved()
        try:
            yield
        finally:
            self._waiting.pop(me, None)
            self.moved()

    def cut_the_overdue(self) -> None:
        """Called by the watchdog, again and again."""
        now = time.monotonic()
        before, self._overdue = self._overdue, {}
        for me, (started, connection, times) in list(self._waiting.items()):
            if now - started > self.limit and self._waiting.get(me, (0.0,))[0] == started:
                if before.get(me) != started:
                    self._overdue[me] = started
                    continue
                if connection.connection is not None:
                    log.cut(now - started)
                    cancel_and_cut(connection, min(2.0, self.limit / 5))
                elif times < CONNECTING and self._shared is not None:
                    # It is connecting. What is below half a lease over all hosts may wait for the name server for longer.
                    self._shared.moved(me)
                self._waiting[me] = (now, connection, times + 1)
