"""The migration lock as its user sees it: `migration_lock()`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, Error, connections

from django_reliable_jobs import conf
from django_reliable_jobs.errors import MigrationLockLost
from django_reliable_jobs.migration_lock.databases.backend import LockBackend
from django_reliable_jobs.migration_lock.target import LockTarget, backend_for, target_for
from django_reliable_jobs.migration_lock.waiting import Report, acquire
from django_reliable_jobs.values.durations import Duration, seconds

logger = logging.getLogger("django_reliable_jobs.migrate")

#: Seconds between two signs of life on the lock's connection. Proxies close what is idle, often after a minute.
PULSE = 15.0
#: Seconds after which a connection that does not answer counts as cut.
PATIENCE = 30.0


class MigrationLock:
    """A lock that is held. `check()` says whether it still is."""

    def __init__(self, backend: LockBackend | None, target: LockTarget, report: Report) -> None:
        self.backend = backend
        self.target = target
        self._report = report
        self._lost = ""
        self._over = threading.Event()
        self._turn = threading.Lock()
        self._pulse = threading.Thread(target=self._live, name="migration-lock-pulse", daemon=True)

    def check(self) -> None:
        """Raise `MigrationLockLost` if the lock's connection was cut: do this before each step that needs the lock."""
        if not self._look():
            raise MigrationLockLost(
                f"The connection that holds the migration lock was cut ({self._lost}), and another process may have the"
                " lock now. What was under way has come to its end; nothing further was started. Run migrate again."
            )

    def hold(self) -> None:
        if self.backend is not None:
            self._pulse.start()

    def release(self) -> None:
        """Raises `MigrationLockLost` if the lock was not held to the end."""
        self._over.set()
        with self._turn:
            if self.backend is None:
                return
            try:
                if not self._lost and not self.backend.release():
                    self._lost = "it was not held any more"
            except Error as error:
                self._lost = _in_one_line(error)
            self.backend.close()
        self.check()

    def abandon(self) -> None:
        """After an error: the end of its connection ends the lock."""
        self._over.set()
        if self.backend is not None:
            if self._turn.locked():  # the pulse waits for an answer, and would for long where the network stands still
                self.backend.interrupt()
            with self._turn:
                self.backend.close()

    def _live(self) -> None:
        while not self._over.wait(PULSE):
            if not self._look():
                if not self._over.is_set():
                    self._report(f"The connection that holds the migration lock was cut: {self._lost}")
                return

    def _look(self) -> bool:
        with self._turn:
            if not self._lost and self.backend is not None and not self._over.is_set():
                try:
                    self.backend.check(PATIENCE)
                except Error as error:
                    self._lost = _in_one_line(error)
            return not self._lost


def _in_one_line(error: Error) -> str:
    return " ".join(str(error).split()) or type(error).__name__


class _Held(threading.local):
    def __init__(self) -> None:
        self.by_alias: dict[str, MigrationLock] = {}


_held = _Held()


@contextmanager
def migration_lock(
    alias: str = DEFAULT_DB_ALIAS, *, timeout: Duration | None = None, report: Report = logger.info
) -> Iterator[MigrationLock]:
    """Hold the lock that `manage.py migrate` takes, for whatever else is to happen only once and not beside it.

    `timeout` is in seconds or a `timedelta`; 0 waits for ever, None for MIGRATE["LOCK_TIMEOUT"]. The lock is on a
    connection of its own: the caller's transactions have nothing to do with it. Inside, `migrate` (in this thread) and
    `migration_lock` itself run at once. `report` gets lines about the waiting.

    Raises `MigrationLockTimeout`; `ImproperlyConfigured` where the connection goes through a pooler that could lose the
    lock; `MigrationLockLost` at the end of a block that was not protected to its end. Where the database has no lock to
    offer, the block runs unprotected, and `report` is told.
    """
    limit = conf.current().migrate["LOCK_TIMEOUT"] if timeout is None else seconds(timeout, "timeout")
    if (outer := _held.by_alias.get(alias)) is not None:
        yield outer
        return
    target = target_for(alias)
    backend = backend_for(target)
    lock = MigrationLock(backend, target, report)
    try:
        if backend is None:
            report(f"There is no migration lock for {connections[alias].display_name}: run migrate once at a time.")
        else:
            acquire(backend, limit, report)
        lock.hold()
        _held.by_alias[alias] = lock
        try:
            yield lock
        finally:
            del _held.by_alias[alias]
    except BaseException:
        lock.abandon()
        raise
    lock.release()


def lock_status(alias: str = DEFAULT_DB_ALIAS) -> str:
    """Say in one sentence who holds the migration lock of this database."""
    backend = backend_for(target_for(alias), refuse_pooler=False)  # to look is safe through a pooler too
    if backend is None:
        return f"There is no migration lock for {connections[alias].display_name}."
    try:
        backend.open(PATIENCE)
        sentence = f"{backend.name} is {backend.holder() or 'free'}."
    finally:
        backend.close()
    return sentence[0].upper() + sentence[1:]
