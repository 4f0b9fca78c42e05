"""Database connections of a worker's threads.

Slots use Django's own connections of their thread. Between two attempts they are put in order as Django does between
two requests, and more: a handler may leave a transaction open, autocommit off, a SET behind; the next job must not
see it.

The worker's own threads (engine, heartbeat, maintenance) have connections of their own that nobody else touches: see
`store.connections`.
"""

from __future__ import annotations

import logging
import re
import select
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.store.connections import cancel_query, close, cut

logger = logging.getLogger("django_reliable_jobs.worker")

#: How a statement begins after which a connection is not like new: session settings, temporary tables, cursors.
_LEAVES_A_TRACE = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:set\s+(?!local\b|constraints\b|transaction\b)|reset\b|listen\b|load\b"
    r"|prepare\s+(?!transaction\b)|declare\b|create\s+(?:local\s+|global\s+)?temp)",
    re.DOTALL,
)
#: `set_config(…, true)` is SET LOCAL: how fences and checkpoints bound their transaction.
_LOCAL_CONFIG = re.compile(r"^\s*select set_config\('[a-z_.]+', (?:%\(\w+\)s|[^()])*, true\)\s*$")
_INTO_TEMPORARY = re.compile(r"\binto\s+(?:local\s+|global\s+)?temp(?:orary)?\s")


class Traces:
    """Watches the statements of a slot's thread for those that leave a trace on the session."""

    def __init__(self) -> None:
        self.left: set[str] = set()

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if leaves_a_trace(sql if isinstance(sql, str) else _text(sql)):
            self.left.add(context["connection"].alias)
        return execute(sql, params, many, context)

    def watch(self) -> list[BaseDatabaseWrapper]:
        """Watch all of this thread's connections, opened or not, and return them."""
        wrappers = list(connections.all())
        for connection in wrappers:
            connection.execute_wrappers.append(self)
        return wrappers


def _text(sql: Any) -> str:
    """Of what psycopg takes beside `str`: bytes, and what its `sql` module composes."""
    if isinstance(sql, bytes):
        return sql.decode(errors="replace")
    return sql.as_string(None) if hasattr(sql, "as_string") else str(sql)


def leaves_a_trace(sql: str) -> bool:
    """Whether the session is not like new after these statements. Cheap: it looks at everything that handlers run."""
    text = sql.lower()
    return (
        _LEAVES_A_TRACE.match(text) is not None
        or ("set_config" in text and _LOCAL_CONFIG.search(text) is None)
        or "advisory_lock" in text
        or (" temp" in text and _INTO_TEMPORARY.search(text) is not None)
        or (";" in text and any(_LEAVES_A_TRACE.match(text, at.end()) for at in re.finditer(";", text)))
    )


def tidy(wrappers: list[BaseDatabaseWrapper], traces: Traces, *, tainted: bool = False) -> None:
    """Put a thread's connections in order before its next attempt. Never raises.

    Rolls back what was left open, closes what is unusable, too old, or bears a trace; empties the query log. `tainted`
    closes all of them: a cancellation may have landed on any.
    """
    for connection in wrappers:
        connection.execute_wrappers[:] = [traces]
        connection.force_debug_cursor = False
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


def drop_the_dead(wrappers: list[BaseDatabaseWrapper]) -> None:
    """Close idle connections on which the server has hung up, so that the next attempt does not fail for it.

    There is something to read on a connection that nobody uses: the end of it, or a message that makes it no longer
    like new. Asking costs a system call, no round trip.
    """
    for connection in wrappers:
        raw = getattr(connection.connection, "pgconn", None)
        if raw is None or not hasattr(select, "poll"):
            continue
        try:
            idle = select.poll()
            idle.register(raw.socket, select.POLLIN)
            if idle.poll(0):
                close(connection)
        except Exception:  # noqa: BLE001 - it is closed already
            close(connection)


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
    """From another thread: ask the servers to cancel what these connections are running. Never raises.

    A server that does not answer will not answer the query either: whoever waits for it is freed by a cut.
    """
    for connection in wrappers:
        raw = connection.connection
        if raw is not None and not cancel_query(raw):
            cut(connection)


def _in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """A raw BEGIN that Django does not know of."""
    info = getattr(connection.connection, "info", None)
    status = getattr(info, "transaction_status", None)
    return status is not None and status.name != "IDLE"
