"""Threads that call the store, so that the caller waits no longer than it wants to.

A caller cannot bound everything itself: looking up a host name or opening a connection may take minutes on a broken
network, whatever timeouts a driver is given. So the call is made by a helper with connections of its own, and a caller
that has waited long enough leaves. What the helper gets after that is handed to `undo`.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Generic, TypeVar

from django_reliable_jobs import conf
from django_reliable_jobs.connections.own_connection import own_connection
from django_reliable_jobs.errors import GuardUnavailable

logger = logging.getLogger("django_reliable_jobs.guards")

T = TypeVar("T")

HELPER = "reliable-jobs-guard"
#: Seconds without a call after which a helper closes its connections and ends.
IDLE = 2.0


class _Call(Generic[T]):
    """One call on its way from the caller to a helper and back."""

    def __init__(self, alias: str, function: Callable[[], T], undo: Callable[[T], object] | None) -> None:
        self.alias = alias
        self._function = function
        self._undo = undo
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._abandoned = False
        self._value: T
        self._error: BaseException | None = None

    def perform(self) -> None:
        """In the helper."""
        if self._abandoned:
            return
        try:
            self._value = self._function()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._error = error
        with self._lock:
            self._finished.set()
            heard = not self._abandoned
        if not heard and self._error is None and self._undo is not None:
            try:
                self._undo(self._value)
            except Exception as error:  # noqa: BLE001 - the caller knows that the outcome is unknown
                logger.warning("a claim that came too late for its caller could not be taken back: %s", error)

    def wait(self, seconds: float) -> T:
        """In the caller. Whatever ends the wait early, an exception from outside included, abandons the call."""
        try:
            self._finished.wait(seconds)
        finally:
            with self._lock:
                self._abandoned = not self._finished.is_set()
        if self._abandoned:
            raise GuardUnavailable(f"the guard's store did not answer within {seconds:.3g} s")
        if self._error is not None:
            raise self._error
        return self._value


class StoreThreads:
    """At most `limit` threads, started as they are needed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)  # a forked child has none of the threads

    def _reset(self) -> None:
        self._more = threading.Condition()
        self._waiting: deque[_Call[Any]] = deque()
        self._threads = 0
        self._idle = 0

    def call(
        self, alias: str, function: Callable[[], T], seconds: float, undo: Callable[[T], object] | None = None
    ) -> T:
        """Return what `function` returns, or raise what it raises; GuardUnavailable after `seconds`.

        In the helper `connections[alias]` is its own. `undo` gets a value that nobody waits for any more.
        """
        call = _Call(alias, function, undo)
        self._begin(call)
        return call.wait(seconds)

    def later(self, alias: str, function: Callable[[], object]) -> None:
        """Have `function` called some time; nobody hears what comes of it."""
        self._begin(_Call(alias, function, None))

    def _begin(self, call: _Call[Any]) -> None:
        with self._more:
            self._waiting.append(call)
            if self._idle >= len(self._waiting) or self._threads >= self._limit:
                self._more.notify()
            else:
                self._threads += 1
                threading.Thread(target=self._run, name=HELPER, daemon=True).start()

    def _run(self) -> None:
        with ExitStack() as stack:
            mine: set[str] = set()
            while (call := self._next()) is not None:
                if call.alias not in mine:
                    # libpq takes whole seconds, two at least.
                    timeout = max(2, math.ceil(conf.current().guards["TIMEOUT"]))
                    stack.enter_context(own_connection(call.alias, "guard", connect_timeout=timeout))
                    mine.add(call.alias)
                call.perform()

    def _next(self) -> _Call[Any] | None:
        with self._more:
            while not self._waiting:
                self._idle += 1
                woken = self._more.wait(IDLE)
                self._idle -= 1
                if not woken and not self._waiting:
                    self._threads -= 1
                    return None
            return self._waiting.popleft()
