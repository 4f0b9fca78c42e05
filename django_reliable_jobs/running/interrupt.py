"""Raising an exception in another thread, so that it hits the work it is meant for and never what the thread does later.

`PyThreadState_SetAsyncExc` only marks the thread; the exception is raised some bytecodes later, in whatever code runs
then. Two races follow. The work may end between the decision to stop it and the raise: so everything that is done to
running work from outside holds the target's lock and looks first whether that work is still the one that is armed; the
end of the work takes the same lock. And the mark may still be pending when the work ends: `disarm` takes it back under
the lock. It may also hit `disarm` itself, even before its first line: so that is called inside a `try`, and once more if
it was hit, since a piece of work gets at most one exception. Python raises such an exception at the start of a function,
after a call and where a loop goes back, so there is no loop around it, and nothing else to be hit.

A thread can have several targets, one inside the other: a job's attempt, and within it a run under a guard. A mark
that this target did not set is left alone, and what hits `disarm` may be the other's.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from django_reliable_jobs.errors import StopHandler

#: Counts without a lock: the next number is one step of the interpreter.
_raised = itertools.count(1)
_last_raised = 0


def raised() -> int:
    """How many stop exceptions were raised in threads of this process. Each may have left a lock taken, in any library."""
    return _last_raised


class Stoppable(Protocol):
    """An attempt, or a run under a guard."""

    #: It has been told to stop, by an exception or because it asked; it needs no (further) exception from outside.
    told: bool


class Target:
    """One thread that does one piece of work after the other."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._armed: Stoppable | None = None
        self._thread_id = 0

    def arm(self, work: Stoppable) -> None:
        self._thread_id = threading.get_ident()
        with self._lock:
            self._armed = work

    def disarm(self) -> None:
        """Wait for whoever is just stopping the work; after this nothing from outside reaches the thread."""
        with self._lock:
            told = self._armed is not None and self._armed.told
            if told:
                _set_async_exception(self._thread_id, None)
            self._armed = None
        if told:
            # Since Python 3.14 the exception may hit between the acquire and the block that releases: then it was ours
            # already when we came here.
            with suppress(RuntimeError):
                while True:
                    self._lock.release()

    @contextmanager
    def held(self, work: Stoppable) -> Iterator[bool]:
        """While inside, the work cannot end. False: it has ended, leave its thread alone."""
        with self._lock:
            yield self._armed is work

    def interrupt(self, work: Stoppable, kind: type[StopHandler]) -> None:
        """Raise `kind` in the thread, unless the work has been told already. Only inside `held`."""
        if not work.told:
            work.told = True
            global _last_raised
            _last_raised = next(_raised)
            _set_async_exception(self._thread_id, kind)


def _set_async_exception(thread_id: int, kind: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), None if kind is None else ctypes.py_object(kind)
    )
