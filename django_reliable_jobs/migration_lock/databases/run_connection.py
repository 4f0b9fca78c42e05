"""The connection that changes the schema, for the time of one run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_reliable_jobs.connections.own_connection import KEEPALIVES
from django_reliable_jobs.migration_lock.databases.backend import LockBackend
from django_reliable_jobs.migration_lock.databases.postgres import PostgresLock
from django_reliable_jobs.migration_lock.identity import run_mark
from django_reliable_jobs.migration_lock.target import LockTarget

#: What of the direct alias the migrated one takes over.
_PARAMETERS = ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")


@contextmanager
def run_connection(target: LockTarget, lock: LockBackend | None) -> Iterator[None]:
    """Inside, this thread's connection of the migrated alias goes the way of the target and bears the lock's mark.

    The alias keeps its name and its wrapper: routers and `schema_editor.connection` see no difference. A connection
    that is in a transaction (a test's) is left as it is.
    """
    wrapper = connections[target.alias]
    marked = isinstance(lock, PostgresLock)
    if wrapper.in_atomic_block or not (marked or target.direct):
        yield
        return
    settings, session = wrapper.settings_dict, marked and not lock.pooled  # type: ignore[union-attr]
    changed = {name: connections[target.way].settings_dict[name] for name in _PARAMETERS}
    options = {name: value for name, value in changed["OPTIONS"].items() if name != "pool" or not target.direct}
    if isinstance(lock, PostgresLock):
        options = {"connect_timeout": 10} | KEEPALIVES | options | {"application_name": run_mark(lock.key)}
        options.pop("pool", None)
    wrapper.close()
    wrapper.settings_dict = settings | changed | {"OPTIONS": options}

    def prepare(connection: BaseDatabaseWrapper, **_: object) -> None:
        if connection is wrapper and session:
            _have_the_server_notice(connection)

    connection_created.connect(prepare, weak=False)
    try:
        yield
    finally:
        connection_created.disconnect(prepare)
        if session:
            _take_off_mark(wrapper)
        wrapper.close()
        wrapper.settings_dict = settings


def _have_the_server_notice(wrapper: BaseDatabaseWrapper) -> None:
    """If this process is killed in the middle of a statement, the server is to end it, not to finish it for nobody."""
    try:
        with wrapper.cursor() as cursor:
            cursor.execute("SELECT set_config('client_connection_check_interval', '1s', false)")
    except Error:
        pass  # A server on another system than Linux may not be able to.


def _take_off_mark(wrapper: BaseDatabaseWrapper) -> None:
    """So that the next run does not take this session, which is ending, for one that is still at work."""
    if wrapper.connection is not None:
        try:
            with wrapper.cursor() as cursor:
                cursor.execute("SELECT set_config('application_name', '', false)")
        except Error:
            pass
