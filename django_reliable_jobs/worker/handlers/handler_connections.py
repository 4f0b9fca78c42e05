"""Database connections of a worker's threads.

Slots use Django's own connections of their thread. Between two attempts they are put in order as Django does between
two requests, and more: a handler may leave a transaction open, autocommit off, a SET behind; the next job must not
see it.

The worker's own threads (engine, heartbeat, maintenance) have connections of their own that nobody else touches: see
`connections.own_connection`.
"""

from __future__ import annotations

import logging
import re
import select
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.connections.own_connection import cancel_query, close, cut

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


#: A transaction that the handler itself wants to be read-only: a refused write is not the server's doing then.
_WANTS_READ_ONLY = re.compile(r"(?:^|;)\s*(?:set|begin|start|select)\b[^;]*\bread[ _]only\b")
#: Where Django's own wrapper classes live. Another one may keep what a handler sets (a tenant's schema) in itself.
_DJANGOS_OWN = ("django.db.backends.", "django.contrib.gis.db.backends.")


class Traces:
    """Watches the statements of a slot's thread for those that leave a trace on the session.

    On PostgreSQL by the driver's cursors, so that raw ones are seen too; elsewhere by Django's. `alias` is the jobs' database,
    whose connections commit what is not in a transaction, whatever the project's AUTOCOMMIT says.
    """

    def __init__(self, alias: str = "") -> None:
        self.alias = alias
        self.left: set[str] = set()
        #: Aliases on which the handler has asked for a read-only transaction.
        self.read_only: set[str] = set()
        #: What the project has installed on the connections when they were opened.
        self._installed: dict[str, list[Any]] = {}

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        self.note(context["connection"].alias, sql)
        return execute(sql, params, many, context)

    def note(self, alias: str, sql: Any) -> None:
        """A statement is about to be run."""
        text = sql if isinstance(sql, str) else _text(sql)
        if leaves_a_trace(text):
            self.left.add(alias)
        if "read" in text.lower() and _WANTS_READ_ONLY.search(text.lower()):
            self.read_only.add(alias)

    def watch(self) -> list[BaseDatabaseWrapper]:
        """Watch all of this thread's connections, opened or not, and return them."""
        return [self.prepare(connection) for connection in connections.all()]

    def prepare(self, connection: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
        """Have this wrapper watched, from its next connection on."""
        if connection.alias == self.alias:
            connection.settings_dict = connection.settings_dict | {"AUTOCOMMIT": True}
        if connection.vendor != "postgresql":
            connection.execute_wrappers.append(self)
        connection.connect = partial(self._connect, connection, connection.connect)  # type: ignore[method-assign]
        return connection

    def _connect(self, connection: BaseDatabaseWrapper, connect: Callable[[], None]) -> None:
        """What `connection_created` has installed belongs to the connection, not to the handler that happened to open it."""
        before = list(connection.execute_wrappers)
        connect()
        if added := connection.execute_wrappers[len(before) :]:
            old = self._installed.get(connection.alias, [])
            connection.execute_wrappers[:] = [w for w in before if not any(w is one for one in old)] + added
            self._installed[connection.alias] = added
        if connection.vendor == "postgresql":
            watch_cursors(connection.connection, partial(self.note, connection.alias))

    def restore_wrappers(self, connection: BaseDatabaseWrapper) -> None:
        """Take off what the handler has left, and put back what it has taken off."""
        if not connection.execute_wrappers and not self._installed and connection.vendor == "postgresql":
            return
        ours = [] if connection.vendor == "postgresql" else [self]
        connection.execute_wrappers[:] = ours + self._installed.get(connection.alias, [])


def watch_cursors(raw: Any, note: Callable[[Any], None]) -> None:
    """Have `note` called with each statement of this psycopg connection, whoever made the cursor."""
    raw._reliable_jobs_note = note
    if not hasattr(raw.cursor_factory, "reliable_jobs_notes"):
        raw.cursor_factory = _noting(raw.cursor_factory)


@cache
def _noting(kind: Any) -> Any:
    class Noting(kind):  # type: ignore[misc]
        reliable_jobs_notes = True

        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            if (note := getattr(self.connection, "_reliable_jobs_note", None)) is not None:
                note(query)
            return super().execute(query, *args, **options)

    return Noting


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
    """In their thread: put its connections in order for the next attempt. Never raises, and asks no server anything: one that
    has just failed may be silent.

    Rolls back what was left open by closing it; closes what had an error, has become read-only, is too old, or bears a trace;
    empties the query log. `tainted` closes all of them: a cancellation may have landed on any.
    """
    for index, connection in enumerate(wrappers):
        if not _is_djangos_own(type(connection).__module__):
            wrappers[index] = _made_anew(connection, traces)
            continue
        traces.restore_wrappers(connection)
        connection.force_debug_cursor = False
        if connection.connection is None and not connection.in_atomic_block:
            continue
        try:
            if (
                tainted
                or connection.errors_occurred
                or connection.alias in traces.left
                or connection.in_atomic_block
                or not connection.autocommit
                or _in_transaction(connection)
                or (connection.alias == traces.alias and _is_read_only(connection))
            ):
                close(connection)
            else:
                connection.close_if_unusable_or_obsolete()  # which asks the server only after an error
                connection.queries_log.clear()
        except Exception:  # noqa: BLE001 - a connection that cannot even be asked is thrown away
            close(connection)
    traces.left.clear()
    traces.read_only.clear()


@cache
def _is_djangos_own(module: str) -> bool:
    return module.startswith(_DJANGOS_OWN)


def _made_anew(connection: BaseDatabaseWrapper, traces: Traces) -> BaseDatabaseWrapper:
    close(connection)
    made = connections.create_connection(connection.alias)
    connections[connection.alias] = made
    return traces.prepare(made)


def _is_read_only(connection: BaseDatabaseWrapper) -> bool:
    """As far as the server has said so: it tells its clients when it becomes a standby, or read-only by default."""
    info = getattr(connection.connection, "info", None)
    if info is None:
        return False
    return any(info.parameter_status(name) == "on" for name in ("in_hot_standby", "default_transaction_read_only"))


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


def pools_that_are_too_small(slots: int) -> list[tuple[str, int]]:
    """The aliases with a pool of Django's that has not a connection for each slot, and how many it has."""
    found = []
    for alias, settings in connections.settings.items():
        pool = (settings.get("OPTIONS") or {}).get("pool")
        if pool:
            options = pool if isinstance(pool, dict) else {}
            most = options.get("max_size") or options.get("min_size", 4)  # psycopg_pool's own default
            if most < slots:
                found.append((alias, most))
    return found


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
