"""Ends statements that take too long, so that nobody waits for ever.

A half-open connection gives neither data nor an error, and a frozen proxy even answers TCP keepalives: only the time
that a statement takes tells. There are two ways to hold it to a time, by who looks at the clock:

- `end_after` is for a call that may come at any time, in any thread (a guard, the migration lock). One thread of this module
  looks at all of them; it is there only while there is something to look at.
- `StatementDeadline` is for threads whose statements wait for no lock and follow each other all the time: the worker's. It
  takes no lock and starts no thread; the watchdog calls `cut_the_overdue`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.connections.own_connection import cancel_and_cut, cancel_query, cut

#: Seconds between two rounds of `end_after`; a statement is ended that much late.
ROUND = 0.05
#: Seconds without a statement after which its thread ends.
IDLE = 2.0
#: So many times its limit a thread may take to connect before it counts as standing still.
CONNECTING = 10


class StatementDeadline:
    """The statements under way in this process' own threads: one that takes `limit` seconds is on a dead connection, or on a
    server that is of no use. The server is asked to end it, the socket is shut down, and the thread that waits gets an error.

    One look is not enough: where the process itself stood still (a C call of a handler that keeps the interpreter,
    SIGSTOP), the answer may be there, and its thread reads it before the next look.

    `moved` is told when a statement begins and when it ends, without an argument by the thread itself, with its id by
    `cut_the_overdue` while it connects. `on_cut` is told the seconds that a statement has waited before it is ended.
    """

    def __init__(
        self, limit: float, moved: Callable[..., None] | None = None, on_cut: Callable[[float], None] | None = None
    ) -> None:
        self.limit = limit
        self._moved = moved
        self._on_cut = on_cut
        self._waiting: dict[int, tuple[float, BaseDatabaseWrapper, int]] = {}
        #: By thread: the start of the wait that was found overdue by the last look.
        self._overdue: dict[int, float] = {}

    def moved(self) -> None:
        """The calling thread is about to wait for the database, or has waited."""
        if self._moved is not None:
            self._moved()

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
                    if self._on_cut is not None:
                        self._on_cut(now - started)
                    cancel_and_cut(connection, min(2.0, self.limit / 5))
                elif times < CONNECTING and self._moved is not None:
                    # It is connecting. What is below half a lease over all hosts may wait for the name server for longer.
                    self._moved(me)
                self._waiting[me] = (now, connection, times + 1)


class Timed:
    """What one thread does on a connection; `overdue` once its end has been asked for."""

    __slots__ = ("cancel_at", "connection", "cut_at", "overdue")

    def __init__(self, connection: BaseDatabaseWrapper, seconds: float, cancel: bool) -> None:
        now = time.monotonic()
        self.connection = connection
        self.cancel_at = now + 0.75 * seconds if cancel else float("inf")
        self.cut_at: float | None = now + seconds
        self.overdue = False


class _Clock:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timed: set[Timed] = set()
        self._thread: threading.Thread | None = None

    def add(self, timed: Timed) -> None:
        with self._lock:
            self._timed.add(timed)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="reliable-jobs-statement-deadline", daemon=True)
                self._thread.start()

    def remove(self, timed: Timed) -> None:
        with self._lock:
            self._timed.discard(timed)

    def _run(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(ROUND)
            with self._lock:
                now = time.monotonic()
                if self._timed:
                    last = now
                elif now - last > IDLE:
                    self._thread = None
                    return
                for timed in self._timed:
                    self._look_at(timed, now)

    def _look_at(self, timed: Timed, now: float) -> None:
        if timed.cut_at is not None and now >= timed.cut_at:
            timed.overdue, timed.cut_at = True, None
            cut(timed.connection)
        elif now >= timed.cancel_at and not timed.overdue:
            timed.overdue = True
            raw = timed.connection.connection
            if raw is not None:
                # In a thread of its own: where the network is silent, so is the cancellation's connection.
                threading.Thread(target=cancel_query, args=(raw,), name="reliable-jobs-cancel", daemon=True).start()


_clock = _Clock()


def _forget() -> None:
    """A forked child has neither the thread nor the statements."""
    global _clock
    _clock = _Clock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def end_after(connection: BaseDatabaseWrapper, seconds: float, *, cancel: bool = True) -> Iterator[Timed]:
    """End what this thread does on `connection` inside, if that takes longer than `seconds`.

    After three quarters of that time the server is asked to cancel the statement, which keeps the connection and leaves no
    doubt what came of it; at the end of the time the connection is cut. Without `cancel` it is only cut.
    """
    timed = Timed(connection, seconds, cancel)
    clock = _clock
    clock.add(timed)
    try:
        yield timed
    finally:
        clock.remove(timed)
