"""More database sessions than one, and a way to stop a statement between what it read and what it locks."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from django.db import connection, connections, transaction

from django_reliable_jobs.store import statements

T = TypeVar("T")

#: Seconds within which anything that is waited for has to happen, on a busy machine too.
PATIENCE = 60.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"waited {PATIENCE:g} seconds in vain until {what}"
        time.sleep(0.005)


class Session:
    """A thread with a connection of its own, that does one thing after the other.

    `do` waits for the answer; `start` does not, so that a statement which waits for a lock can be left waiting.
    """

    def __init__(self, alias: str = "default") -> None:
        self.alias = alias
        self._thread = ThreadPoolExecutor(1)
        self._block: transaction.Atomic | None = None
        self.pid = self.do(self._pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.rollback()
        finally:
            self._thread.submit(connections.close_all).result(PATIENCE)
            self._thread.shutdown()

    def start(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
        return self._thread.submit(function, *args, **kwargs)

    def do(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return self.start(function, *args, **kwargs).result(PATIENCE)

    def sql(self, text: str, params: Any = None) -> list[tuple[Any, ...]]:
        return self.do(fetch, text, params, self.alias)

    def begin(self) -> None:
        """Open a transaction that stays open over the next calls."""
        self._block = transaction.atomic(using=self.alias)
        self.do(self._block.__enter__)

    def commit(self) -> None:
        block, self._block = self._block, None
        assert block is not None, "there is no open transaction"
        self.do(block.__exit__, None, None, None)

    def rollback(self) -> None:
        block, self._block = self._block, None
        if block is not None:
            error = _Rollback()
            self.do(block.__exit__, _Rollback, error, None)

    def waits_for(self, *answers: Future[Any]) -> None:
        """Return when this session's statement waits for a lock. A statement that ended instead is an error."""

        def waiting() -> bool:
            for answer in answers:
                if answer.done():
                    raise AssertionError(f"the statement did not wait: {answer.exception() or answer.result()!r}")
            return self.is_waiting

        wait_until(waiting, "the statement waits for a lock")

    @property
    def is_waiting(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", [self.pid])
            return bool(cursor.fetchone()[0])

    def _pid(self) -> int:
        return int(fetch("SELECT pg_backend_pid()", None, self.alias)[0][0])


class _Rollback(Exception):
    """Leaves an atomic block without a commit."""


def fetch(text: str, params: Any = None, alias: str = "default") -> list[tuple[Any, ...]]:
    with connections[alias].cursor() as cursor:
        cursor.execute(text, params)
        return cursor.fetchall() if cursor.description else []


def impatient(milliseconds: int = 20_000) -> None:
    """In the current session: a statement that waits for a lock is an error, instead of a test that hangs."""
    fetch(f"SET lock_timeout = {milliseconds}")


def together(*functions: Callable[[], T]) -> list[T]:
    """Run all of them at once, each in a thread with a connection of its own; their results, or the first error."""

    def one(function: Callable[[], T]) -> T:
        try:
            return function()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(functions)) as threads:
        answers = [threads.submit(one, function) for function in functions]
        return [answer.result() for answer in answers]


#: The key of the advisory lock that a paused statement waits for.
PAUSE = 4711
_ANY_STATUS = "'{QUEUED,RUNNING,FAILED,DONE,DEAD,CANCELLED}'::text[]"


@contextmanager
def pausing(name: str, after: str = r"WHERE job\.status\b") -> Iterator[Callable[[], None]]:
    """The statement `name`, for whoever runs it meanwhile, stops after it took its snapshot and before it locks a row.

    `after` matches the place in its text where the pause is put. What is yielded lets it go on.
    """
    pause = f"\\g<0> = ANY ({_ANY_STATUS}) AND (SELECT true FROM pg_advisory_xact_lock_shared({PAUSE})) AND job.status"
    text, count = re.subn(after, pause, statements.load(name), count=1)
    assert count == 1, f"no place for a pause in {name}"
    load = statements.load
    with Session() as keeper:
        keeper.sql(f"SELECT pg_advisory_lock({PAUSE})")
        statements.load = lambda asked: text if asked == name else load(asked)  # type: ignore[assignment]
        try:
            yield lambda: keeper.sql(f"SELECT pg_advisory_unlock({PAUSE})") and None
        finally:
            statements.load = load
