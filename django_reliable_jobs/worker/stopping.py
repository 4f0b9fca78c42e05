"""Raising an exception in another thread, so that it hits the attempt it is meant for and never a later one.

`PyThreadState_SetAsyncExc` only marks the thread; the exception is raised some bytecodes later, in whatever code runs
then. Two races follow. The attempt may end between the decision to stop it and the raise: so everything that is done to
a running attempt from outside holds the target's lock and looks first whether that attempt is still the one that is
armed; the end of an attempt takes the same lock. And the mark may still be pending when the attempt ends: `disarm`
takes it back under the lock. It may also hit `disarm` itself, on the way to the lock; then `disarm` is simply entered
again, since an attempt gets at most one exception.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django_reliable_jobs.attempt import Attempt
from django_reliable_jobs.errors import StopHandler


class Target:
    """One thread that runs attempts, one after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: Attempt | None = None
        self._thread_id = 0

    def arm(self, attempt: Attempt) -> None:
        self._thread_id = threading.get_ident()
        with self._lock:
            self._armed = attempt

    def disarm(self) -> None:
        """Wait for whoever is just stopping the attempt; after this nothing from outside reaches the thread."""
        while True:
            try:
                with self._lock:
                    self._armed = None
                    _set_async_exception(self._thread_id, None)
                return
            except StopHandler:
                continue

    @contextmanager
    def held(self, attempt: Attempt) -> Iterator[bool]:
        """While inside, the attempt cannot end. False: it has ended, leave its thread alone."""
        with self._lock:
            yield self._armed is attempt

    def interrupt(self, attempt: Attempt, kind: type[StopHandler]) -> None:
        """Raise `kind` in the thread, unless the handler has been told already. Only inside `held`."""
        if not attempt.told:
            attempt.told = True
            _set_async_exception(self._thread_id, kind)


def _set_async_exception(thread_id: int, kind: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), None if kind is None else ctypes.py_object(kind)
    )
