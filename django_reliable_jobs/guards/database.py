"""The default store: rows of `GuardClaim`, on the database that the caller uses anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.db import Error as DatabaseTrouble
from django.db import InterfaceError, OperationalError, ProgrammingError, connections

from django_reliable_jobs import conf
from django_reliable_jobs.connections.own_connection import close
from django_reliable_jobs.connections.statement_deadline import end_after
from django_reliable_jobs.errors import GuardUnavailable
from django_reliable_jobs.store import guards

T = TypeVar("T")

#: SQLSTATE classes and codes of a server that is not there, or that ended the statement because it took too long:
#: connections, resources, an operator's intervention (a cancelled query too), system errors, lock and idle timeouts.
_OUT_OF_REACH = ("08", "53", "57", "58", "55P03", "25P03", "25P04")

#: SQLSTATEs of a database in which this version's migrations have not run: no schema, no table or sequence, no column.
_NOT_MIGRATED = ("3F000", "42P01", "42703")


class DatabaseStore:
    """Claims in a transaction commit or vanish with it; a rival waits for that, at most `GUARDS["TIMEOUT"]`."""

    in_database = True

    def acquire(self, alias: str, key: str, owner: str, ttl: float | None, until: float | None = None) -> int | None:
        return _asked(alias, lambda: guards.acquire(alias, key, owner, ttl, until))

    def renew(
        self, alias: str, key: str, token: int, ttl: float | None, until: float | None = None, *, done: bool = False
    ) -> bool:
        return _asked(alias, lambda: guards.renew(alias, key, token, ttl, until, done=done))

    def release(self, alias: str, key: str, token: int) -> bool:
        return _asked(alias, lambda: guards.release(alias, key, token))

    def now(self, alias: str) -> float:
        return _asked(alias, lambda: guards.now(alias))


def _asked(alias: str, statement: Callable[[], T]) -> T:
    """Outside of a transaction it is asked again after a serialization error: the server's default level may be stricter than
    READ COMMITTED, and each such error means that somebody else got on."""
    while True:
        try:
            with reachable(alias):
                return statement()
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != "40001" or in_transaction(alias):
                raise


@contextmanager
def reachable(alias: str) -> Iterator[None]:
    """Statements inside are ended after `GUARDS["TIMEOUT"]`; GuardUnavailable if the database does not answer, or has not
    the tables yet.

    A connection that failed, or on which a late cancellation could hit somebody else's statement, is thrown away unless
    it is in a transaction, which then cannot go on.
    """
    connection = connections[alias]
    timeout: float = conf.current().guards["TIMEOUT"]
    try:
        with end_after(connection, timeout) as timed:
            yield
    except (OperationalError, InterfaceError) as error:
        if not _is_out_of_reach(error):
            raise
        if not in_transaction(alias):
            close(connection)
        if timed.overdue:
            reason = f"it did not answer within {timeout:g} s (or the key waits for another's open transaction)"
        else:
            reason = str(error).strip()
        raise GuardUnavailable(f"the database {alias!r} is out of reach for guards: {reason}") from error
    except ProgrammingError as error:
        if getattr(error.__cause__, "sqlstate", None) not in _NOT_MIGRATED:
            raise
        raise GuardUnavailable(
            f"the database {alias!r} has not what guards need: the migrations of django_reliable_jobs up to 0003_guards"
            " are not applied to it. Run `manage.py migrate`; a guard in AppConfig.ready runs in that command too,"
            " before it has made the tables."
        ) from error
    if timed.overdue:
        if in_transaction(alias):
            raise GuardUnavailable(f"the database {alias!r} did not answer within {timeout:g} s")
        close(connection)


def in_transaction(alias: str) -> bool:
    """Whether what is done now waits for a commit of the caller's."""
    connection = connections[alias]
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)


def _is_out_of_reach(error: DatabaseTrouble) -> bool:
    state: str | None = getattr(error.__cause__, "sqlstate", None)
    return state is None or state.startswith(_OUT_OF_REACH)
