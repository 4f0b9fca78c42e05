"""The lock on PostgreSQL: an advisory lock on a pinned connection of its own.

Whoever waits polls `pg_try_advisory_lock()` and has no snapshot between two polls: a session that waits inside
`pg_advisory_lock()` has one, and the holder's CREATE INDEX CONCURRENTLY would wait for it for ever (protocol 20).

Through a transaction pooler each statement may get another session, and a session lock would stay behind in one that
nobody can find again. So the session is asked who it is, in the same statement that takes the lock: the pid of the
start-up packet is the pooler's own invention there (PgBouncer's is a random 32-bit number, which is right by
chance once in four thousand million times). A pooler that passes on the real pid would be caught by the second test:
two connections that are open at once have the same session. Whatever gets past both is noticed by `check`, which
compares the pids again before every migration.

With MIGRATE["POOLER"] the lock belongs to an open transaction, which pins its session in any pooler. Nothing runs in it
that leaves a snapshot behind: CREATE INDEX CONCURRENTLY waits for the whole transaction of a snapshot it once saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, Error
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.types.json import Jsonb

from django_reliable_jobs.connections.own_connection import cut, goes_through_a_pooler
from django_reliable_jobs.connections.statement_deadline import end_after
from django_reliable_jobs.migration_lock.databases.backend import NoAnswer, close_quietly
from django_reliable_jobs.migration_lock.identity import Holder, key_for, lock_mark, read_mark, run_mark_prefix

#: Seconds that a statement may take which waits for nothing.
STATEMENT_SECONDS = 30.0
#: The server's side of `KEEPALIVES`.
_SESSION = {
    "idle_session_timeout": "0",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
_TRANSACTION = {"idle_in_transaction_session_timeout": "0", "transaction_timeout": "0"}
_SET = "SELECT set_config(name, %s::jsonb ->> name, %s) FROM pg_settings WHERE %s::jsonb ? name"
_LOCK_ROWS = """
    SELECT pid FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (classid::bigint << 32) | objid::bigint = %s
"""


class PostgresLock:
    """`transaction`: hold the lock in an open transaction, whatever the connection is. Else a session holds it, and a
    pooler is refused, or (without `refuse_pooler`) is a reason to hold it in a transaction after all. `verify` may
    have more to say against a new connection.
    """

    def __init__(
        self,
        wrapper: BaseDatabaseWrapper,
        *,
        transaction: bool,
        refuse_pooler: bool,
        verify: Callable[[PostgresLock], None],
    ) -> None:
        self._wrapper = wrapper
        self._transaction = transaction
        self._refuse_pooler = refuse_pooler
        self._verify = verify
        self.key = 0
        self.name = ""

    @property
    def pooled(self) -> bool:
        """True if the lock is held by a transaction, so that other connections may not rely on their session."""
        return self._transaction

    def open(self, within: float) -> None:
        self._wrapper.ensure_connection()
        database, schema = self.row("SELECT current_database(), current_schema()", within=within)
        self.key = key_for(database, schema)
        self.name = f"the migration lock of database {database!r}, schema {schema!r} (key {self.key})"
        if not self._transaction and self._is_pooled():
            self.found_pooler()
        self._verify(self)
        if not self._transaction:
            self._set(_SESSION, local=False)

    def found_pooler(self) -> None:
        """The session is not ours alone: hold the lock in a transaction, or refuse."""
        if self._refuse_pooler:
            raise ImproperlyConfigured(
                f"The database alias {self._wrapper.alias!r} goes through a connection pooler, which may give every"
                " statement another session: the migration lock would get lost in it. Set"
                ' RELIABLE_JOBS["MIGRATE"]["DATABASE"] to an alias that goes straight to PostgreSQL. Or set'
                ' RELIABLE_JOBS["MIGRATE"]["POOLER"] to True to hold the lock in an open transaction; the pooler must'
                " then have at least two server connections for this database."
            )
        self._transaction = True

    def try_acquire(self, within: float) -> bool:
        if not self._take(within):
            return False
        # The lock of a run may be cut off while it is in a migration: that one has to end first. Not waiting in here,
        # because in the lock's transaction the asking leaves a snapshot, for which that run's CREATE INDEX might wait.
        if self._predecessors():
            self.release()
            return False
        (since,) = self.row("SELECT extract(epoch FROM clock_timestamp())::bigint")
        self.row("SELECT set_config('application_name', %s, %s)", lock_mark(since), self._transaction)
        if self._transaction:
            self._set(_TRANSACTION, local=True)
        return True

    def _take(self, within: float) -> bool:
        if self._transaction:
            self._run("BEGIN ISOLATION LEVEL READ COMMITTED", within=within)
            (got,) = self.row("SELECT pg_try_advisory_xact_lock(%s)", self.key, within=within)
            if not got:
                self._run("ROLLBACK", within=within)
            return bool(got)
        statement = "SELECT CASE WHEN pg_backend_pid() = %s THEN pg_try_advisory_lock(%s) END"
        (got,) = self.row(statement, self._raw.info.backend_pid, self.key, within=within)
        if got is None:
            self.found_pooler()
        return bool(got)

    def holder(self) -> Holder | None:
        found = self._sessions(f"pid IN ({_LOCK_ROWS})", self.key) or self._predecessors()
        return found[0] if found else None

    def _predecessors(self) -> list[Holder]:
        """Runs whose lock was cut off. Their sessions have to be gone; but behind a pooler sessions stay, with the name
        of the last user: there they must have come to rest, without a lock on anything."""
        condition = "application_name LIKE %s AND datname = current_database()"
        if self._transaction:
            condition += " AND pid IN (SELECT pid FROM pg_locks)"
        return self._sessions(condition, run_mark_prefix(self.key) + "%")

    def check(self, within: float) -> None:
        if not self._transaction:
            (pid,) = self.row("SELECT pg_backend_pid()", within=within)
            if pid != self._raw.info.backend_pid:
                raise DatabaseError("a pooler has given the connection another session")
            return
        self.row("SHOW transaction_isolation", within=within)  # takes no snapshot, as a SELECT would
        if self._raw.info.transaction_status != psycopg.pq.TransactionStatus.INTRANS:
            raise DatabaseError("its transaction has ended")

    def release(self) -> bool:
        if self._transaction:
            self.check(STATEMENT_SECONDS)
            self._run("ROLLBACK")
            return True
        return bool(self.row("SELECT pg_advisory_unlock(%s)", self.key)[0])

    def interrupt(self) -> None:
        cut(self._wrapper)

    def close(self) -> None:
        close_quietly(self._wrapper)

    # --- how it is said ---------------------------------------------------------------------------

    @property
    def _raw(self) -> psycopg.Connection[Any]:
        raw: psycopg.Connection[Any] | None = self._wrapper.connection
        if raw is None:
            raise DatabaseError("the connection is closed")
        return raw

    def _is_pooled(self) -> bool:
        with answered_within(self._wrapper, STATEMENT_SECONDS):
            return any(goes_through_a_pooler(self._raw) for _ in range(3))

    def _sessions(self, condition: str, *params: object) -> list[Holder]:
        statement = (
            "SELECT pid, application_name, extract(epoch FROM clock_timestamp())"  # noqa: S608 - one of the above
            f" FROM pg_stat_activity WHERE {condition} ORDER BY backend_start"
        )
        rows = self._run(statement, *params).fetchall()
        return [read_mark(mark, now=float(now), session=f"server process {pid}") for pid, mark, now in rows]

    def _set(self, settings: dict[str, str], *, local: bool) -> None:
        """Set those that this version of PostgreSQL has."""
        values = Jsonb(settings)
        self._run(_SET, values, local, values)

    def row(self, statement: str, *params: object, within: float = STATEMENT_SECONDS) -> tuple[Any, ...]:
        row: tuple[Any, ...] | None = self._run(statement, *params, within=within).fetchone()
        assert row is not None
        return row

    def _run(self, statement: str, *params: object, within: float = STATEMENT_SECONDS) -> psycopg.Cursor[Any]:
        raw = self._raw
        with answered_within(self._wrapper, within):
            return raw.execute(statement, params or None)


@contextmanager
def answered_within(wrapper: BaseDatabaseWrapper, seconds: float) -> Iterator[None]:
    """Cut the connection if the block takes longer, and raise `NoAnswer`: a pooler without a free session, or a frozen
    proxy (which answers keepalives), does not answer and does not fail. Other errors become Django's."""
    with end_after(wrapper, seconds, cancel=False) as timed:
        try:
            with wrapper.wrap_database_errors:
                yield
        except Error as error:
            if timed.overdue:
                raise NoAnswer(f"there was no answer within {seconds:.0f} s") from error
            raise
