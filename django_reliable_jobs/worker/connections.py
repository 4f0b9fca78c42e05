"""Database connections of a worker's threads.

Slots use Django's own connections of their thread. Between two attempts they are put in order as Django does between
two requests, and more: a handler may leave a transaction open, autocommit off, a SET behind; the next job must not
see it.

The worker's own threads (engine, heartbeat, maintenance) have connections of their own that nobody else touches.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger("django_reliable_jobs.worker")

#: Statements after which a connection is not like new: session settings, session locks, temporary tables, cursors.
_LEAVES_A_TRACE = re.compile(
    r"^\s*(?:set\s+(?!local\b|constraints\b|transaction\b)|reset\b|listen\b|load\b|prepare\b"
    r"|create\s+(?:local\s+|global\s+)?temp)|set_config\s*\(|pg_(?:try_)?advisory_lock",
    re.IGNORECASE,
)


class Traces:
    """Watches the statements of a slot's thread for those that leave a trace on the session."""

    def __init__(self) -> None:
        self.left: set[str] = set()

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if _LEAVES_A_TRACE.search(sql if isinstance(sql, str) else str(sql)):
            self.left.add(context["connection"].alias)
        return execute(sql, params, many, context)

    def watch(self) -> list[BaseDatabaseWrapper]:
        """Watch all of this thread's connections, opened or not, and return them."""
        wrappers = list(connections.all())
        for connection in wrappers:
            connection.execute_wrappers.append(self)
        return wrappers


def tidy(wrappers: list[BaseDatabaseWrapper], traces: Traces, *, tainted: bool = False) -> None:
    """Put a thread's connections in order before its next attempt. Never raises.

    Rolls back what was left open, closes what is unusable, too old, or bears a trace; empties the query log. `tainted`
    closes all of them: a cancellation may have landed on any.
    """
    for connection in wrappers:
        if connection.connection is None and not connection.in_atomic_block:
            continue
        try:
            if (
                tainted
                or connection.alias in traces.left
                or connection.in_atomic_block
                or not connection.get_autocommit()
                or _in_transaction(connection)
            ):
                close(connection)
            else:
                connection.close_if_unusable_or_obsolete()
                connection.queries_log.clear()
        except Exception:  # noqa: BLE001 - a connection that cannot even be asked is thrown away
            close(connection)
    traces.left.clear()


def leave_nothing_open() -> None:
    """Before a fork: close this process' connections and its pools, whose threads a child would not have."""
    for connection in connections.all():
        connection.close()
        if connection.alias in getattr(connection, "_connection_pools", {}):
            connection.close_pool()  # type: ignore[attr-defined]


def close_all(wrappers: list[BaseDatabaseWrapper]) -> None:
    for connection in wrappers:
        close(connection)


def cancel_queries(wrappers: list[BaseDatabaseWrapper]) -> None:
    """From another thread: ask the servers to cancel what these connections are running. Never raises."""
    for connection in wrappers:
        raw = connection.connection
        if raw is None:
            continue
        try:
            # cancel_safe() (psycopg 3.2) encrypts and times out where libpq can; cancel() is its older form.
            raw.cancel_safe(timeout=2.0) if hasattr(raw, "cancel_safe") else raw.cancel()
        except Exception as error:  # noqa: BLE001 - the query may have ended, or the server is out of reach
            logger.debug("cancelling a query on %r failed: %s", connection.alias, error)


def close(connection: BaseDatabaseWrapper) -> None:
    """Throw the connection away, whatever state it is in; the server rolls back what was open."""
    raw = connection.connection
    connection.connection = None
    connection.queries_log.clear()
    connection.run_on_commit = []
    connection.savepoint_ids = []
    connection.in_atomic_block = False
    connection.atomic_blocks = []
    connection.needs_rollback = False
    connection.closed_in_transaction = False
    connection.errors_occurred = False
    if raw is not None:
        try:
            raw.close()
            # Django's pool has to be told, or it waits for the connection for ever; a closed one it replaces.
            if (pool := getattr(raw, "_pool", None)) is not None:
                pool.putconn(raw)
        except Exception as error:  # noqa: BLE001
            logger.debug("closing a connection to %r failed: %s", connection.alias, error)


def _in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """A raw BEGIN that Django does not know of."""
    info = getattr(connection.connection, "info", None)
    status = getattr(info, "transaction_status", None)
    return status is not None and status.name != "IDLE"


@contextmanager
def own_connection(alias: str, name: str) -> Iterator[BaseDatabaseWrapper]:
    """For a thread of the worker: a connection to `alias` that no handler uses, closed at the end.

    It is not pooled by Django, lives as long as the thread, and does not fill the query log. TCP keepalives are on
    unless the project sets its own, so that a dead network is noticed within about half a minute.
    """
    connection = connections[alias].copy(alias)
    options = dict(connection.settings_dict.get("OPTIONS") or {})
    if connection.vendor == "postgresql":
        options.pop("pool", None)
        options = {
            "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000,
            "connect_timeout": 10, "application_name": f"reliable_jobs {name}",
        } | options  # fmt: skip
    connection.settings_dict = connection.settings_dict | {"OPTIONS": options, "CONN_MAX_AGE": None}
    connection.queries_log = deque(maxlen=1)
    connections[alias] = connection
    try:
        yield connection
    finally:
        close(connection)
        del connections[alias]
