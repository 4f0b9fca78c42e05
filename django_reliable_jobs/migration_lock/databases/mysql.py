"""The lock on MySQL and MariaDB: GET_LOCK on a pinned connection of its own. Its names are the whole server's."""

from __future__ import annotations

from typing import Any

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.migration_lock.databases.backend import close_quietly
from django_reliable_jobs.migration_lock.identity import Holder, hexadecimal, key_for

#: Seconds after which the server closes an idle session; GET_LOCK's session is idle for the whole of a migration.
_IDLE = 7 * 86_400


class MySQLLock:
    def __init__(self, wrapper: BaseDatabaseWrapper) -> None:
        self._wrapper = wrapper
        self._lock = ""
        self.name = ""

    def open(self, within: float) -> None:
        self._wrapper.ensure_connection()
        (database,) = self._row("SELECT DATABASE()")
        key = key_for(database, None)
        self._lock = f"django_reliable_jobs.migrate.{hexadecimal(key)}"
        self.name = f"the migration lock of database {database!r} ({self._lock})"
        with self._wrapper.cursor() as cursor:
            cursor.execute("SET SESSION wait_timeout = %s", [_IDLE])

    def try_acquire(self, within: float) -> bool:
        return bool(self._row("SELECT GET_LOCK(%s, 0)", self._lock)[0])

    def holder(self) -> Holder | None:
        (session,) = self._row("SELECT IS_USED_LOCK(%s)", self._lock)
        if session is None:
            return None
        with self._wrapper.cursor() as cursor:  # the row of another user is only seen with the privilege PROCESS
            cursor.execute("SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = %s", [session])
            row = cursor.fetchone()
        return Holder(session=f"session {session}" + (f" from {row[0]}" if row else ""))

    def check(self, within: float) -> None:
        if not self._row("SELECT IS_USED_LOCK(%s) = CONNECTION_ID()", self._lock)[0]:
            raise DatabaseError("the server does not know of the lock any more")

    def release(self) -> bool:
        return bool(self._row("SELECT RELEASE_LOCK(%s)", self._lock)[0])

    def interrupt(self) -> None:
        pass  # its calls have the client's own timeouts

    def close(self) -> None:
        close_quietly(self._wrapper)

    def _row(self, statement: str, *params: str) -> tuple[Any, ...]:
        if self._wrapper.connection is None:  # never another session in its place without a word
            raise DatabaseError("the connection is closed")
        with self._wrapper.cursor() as cursor:
            cursor.execute(statement, list(params))
            row: tuple[Any, ...] = cursor.fetchone()
        return row
