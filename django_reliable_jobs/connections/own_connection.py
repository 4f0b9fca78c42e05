"""Connections that belong to a thread of this package, and what can be done to one whose server is silent."""

from __future__ import annotations

import _thread
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import IsolationLevel

from django_reliable_jobs import conf

logger = logging.getLogger("django_reliable_jobs.connections")

#: libpq's parameters: a peer that is gone without a word is noticed in 25 s.
KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}


@contextmanager
def own_connection(alias: str, name: str, **changes: Any) -> Iterator[BaseDatabaseWrapper]:
    """For a thread of the package: a connection to `alias` that no handler uses, closed at the end.

    It is not pooled by Django, lives as long as the thread, and does not fill the query log. TCP keepalives are on
    unless the project sets its own, so that a dead network is noticed within about half a minute. `changes` are OPTIONS
    that hold whatever the project's say.

    Straight to PostgreSQL, statements are prepared: planning the exchange takes as long as running it. Behind a
    transaction pooler nothing is prepared or set, since the next user would inherit it (protocol 19).
    """
    connection = connections[alias].copy(alias)
    options = dict(connection.settings_dict.get("OPTIONS") or {})
    if connection.vendor == "postgresql":
        options.pop("pool", None)
        options = KEEPALIVES | {"application_name": f"reliable_jobs {name}"} | options | {
            "server_side_binding": True, "isolation_level": IsolationLevel.READ_COMMITTED,
            "connect_timeout": _connect_timeout(connection, options),
        } | changes  # fmt: skip
    connection.settings_dict = connection.settings_dict | {"OPTIONS": options, "CONN_MAX_AGE": None, "AUTOCOMMIT": True}
    connection.queries_log = deque(maxlen=1)
    if connection.vendor == "postgresql":
        connection.connect = partial(_connect, connection, connection.connect)  # type: ignore[method-assign]
    connections[alias] = connection
    try:
        yield connection
    finally:
        close(connection)
        del connections[alias]


def _connect_timeout(connection: BaseDatabaseWrapper, options: dict[str, Any]) -> int:
    """Whole seconds for each host, of which libpq takes two at least: all hosts together take less than half a lease."""
    hosts = str(options.get("host") or connection.settings_dict.get("HOST") or "").count(",") + 1
    longest = max(2, int(conf.current().lease / 2 / hosts))
    with suppress(TypeError, ValueError):
        if (chosen := int(options.get("connect_timeout") or 0)) > 0:
            return min(chosen, longest)
    return min(10, longest)


def goes_through_a_pooler(raw: Any) -> bool:
    """Whether a transaction pooler stands between: it tells its own process id at start-up (protocol 19)."""
    return bool(raw.execute("SELECT pg_backend_pid()").fetchone()[0] != raw.info.backend_pid)


def _connect(connection: BaseDatabaseWrapper, connect: Callable[[], None]) -> None:
    connect()
    raw = connection.connection
    if goes_through_a_pooler(raw):
        return
    raw.prepare_threshold = 1
    # The statements are written for their indexes, whose entries change faster than the statistics: a plan that is made
    # once must not be another one. Compiling it would take longer than running it.
    raw.execute(
        "SELECT set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false),"
        " set_config('enable_bitmapscan', 'off', false), set_config('jit', 'off', false),"
        " set_config('default_transaction_isolation', 'read committed', false)"
    )


@contextmanager
def read_committed(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Transactions that are begun inside are READ COMMITTED, whatever the server's or the project's default is (protocol 18).

    Costs no round trip: BEGIN says so. May connect.
    """
    connection.ensure_connection()
    raw = connection.connection
    before = raw.isolation_level
    if before is not IsolationLevel.READ_COMMITTED:
        raw.isolation_level = IsolationLevel.READ_COMMITTED
    try:
        yield
    finally:
        if raw is connection.connection and before is not IsolationLevel.READ_COMMITTED:
            with suppress(Exception):  # it is closed, or left in a transaction: whoever tidies up throws it away
                raw.isolation_level = before


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


def cancel_query(raw: Any, timeout: float = 2.0) -> bool:
    """From another thread: ask the server to cancel what this psycopg connection is running. Never raises.

    False: the server did not answer.
    """
    try:
        # cancel_safe() (psycopg 3.2) encrypts and times out where libpq can; cancel() is its older form.
        raw.cancel_safe(timeout=timeout) if hasattr(raw, "cancel_safe") else raw.cancel()
    except Exception as error:  # noqa: BLE001 - the query may have ended, or the server is out of reach
        logger.debug("cancelling a query failed: %s", error)
        return False
    return True


def cut(connection: BaseDatabaseWrapper) -> None:
    """From another thread: shut the socket down; whoever waits on it gets an error. Never raises.

    The file descriptor stays its owner's.
    """
    _cut(connection.connection)


def cancel_and_cut(connection: BaseDatabaseWrapper, timeout: float = 2.0) -> None:
    """From another thread, which does not wait: `cut`, but first the server is asked to end the statement.

    It would go on there for nobody, beside the same one that comes again. A silent server has `timeout` seconds to answer.
    """
    raw = connection.connection

    def end() -> None:
        cancel_query(raw, timeout)
        _cut(raw)

    if raw is not None:
        _thread.start_new_thread(end, ())  # threading's own takes locks that a stopped handler may have kept


def _cut(raw: Any) -> None:
    try:
        with socket.socket(fileno=os.dup(raw.pgconn.socket)) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
    except Exception as error:  # noqa: BLE001 - it is closed already
        logger.debug("cutting a connection failed: %s", error)
