"""Ends statements that take too long, so that no guard call hangs.

A statement may wait for a lock (a rival's open transaction), for a server that is slow, or on a connection whose other
end is gone and says so to nobody. After three quarters of its time the server is asked to cancel it, which keeps the
connection and leaves no doubt what came of it; at the end of its time the connection is cut.

One thread looks at all of them. It is there only while there is something to look at.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.connections.own_connection import cancel_query, cut

#: Seconds between two rounds; a statement is ended that much late.
ROUND = 0.05
#: Seconds without a statement after which the thread ends.
IDLE = 2.0


class Watched:
    """One statement, or a few; `overdue` once its end has been asked for."""

    __slots__ = ("cancel_at", "connection", "cut_at", "overdue")

    def __init__(self, connection: BaseDatabaseWrapper, seconds: float) -> None:
        now = time.monotonic()
        self.connection = connection
        self.cancel_at = now + 0.75 * seconds
        self.cut_at: float | None = now + seconds
        self.overdue = False


class _Watcher:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None

    def add(self, watched: Watched) -> None:
        with self._lock:
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="reliable-jobs-guard-watch", daemon=True)
                self._thread.start()

    def remove(self, watched: Watched) -> None:
        with self._lock:
            self._watched.discard(watched)

    def _run(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(ROUND)
            with self._lock:
                now = time.monotonic()
                if self._watched:
                    last = now
                elif now - last > IDLE:
                    self._thread = None
                    return
                for watched in self._watched:
                    self._look_at(watched, now)

    def _look_at(self, watched: Watched, now: float) -> None:
        if watched.cut_at is not None and now >= watched.cut_at:
            watched.overdue, watched.cut_at = True, None
            cut(watched.connection)
        elif now >= watched.cancel_at and not watched.overdue:
            watched.overdue = True
            raw = watched.connection.connection
            if raw is not None:
                # In a thread of its own: where the network is silent, so is the cancellation's connection.
                threading.Thread(
                    target=cancel_query, args=(raw,), name="reliable-jobs-guard-cancel", daemon=True
                ).start()


_watcher = _Watcher()


def _forget() -> None:
    """A forked child has neither the thread nor the statements."""
    global _watcher
    _watcher = _Watcher()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def watch(connection: BaseDatabaseWrapper, seconds: float) -> Iterator[Watched]:
    """End what this thread does on `connection` inside, if that takes longer than `seconds`."""
    watched = Watched(connection, seconds)
    watcher = _watcher
    watcher.add(watched)
    try:
        yield watched
    finally:
        watcher.remove(watched)
