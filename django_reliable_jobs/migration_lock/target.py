"""Where the migrations of an alias go: to the alias itself, or to the direct one in MIGRATE["DATABASE"].

The direct alias serves one alias: the one that it is the TEST["MIRROR"] of, or else RELIABLE_JOBS["DATABASE"].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs import conf
from django_reliable_jobs.connections.own_connection import KEEPALIVES
from django_reliable_jobs.migration_lock.databases.backend import LockBackend, close_quietly
from django_reliable_jobs.migration_lock.databases.mysql import MySQLLock
from django_reliable_jobs.migration_lock.databases.postgres import PostgresLock, answered_within
from django_reliable_jobs.migration_lock.databases.sqlite import SQLiteLock

#: Seconds for a look at the migrated alias itself: its pooler may be paused while the direct way is in use.
_LOOK = 5.0
#: What is asked of both ways to see that they lead to one place. No two servers have started in one microsecond.
_PLACE = """
    SELECT pg_backend_pid(), current_schema(), current_database(), oid, pg_postmaster_start_time()
    FROM pg_database WHERE datname = current_database()
"""
_configured_names: dict[str, Any] = {}


def remember_names() -> None:
    """Called when apps are ready: what the databases are called before a test runner gives them other names."""
    for alias in connections.settings:
        _configured_names[alias] = connections.settings[alias]["NAME"]


@dataclass(frozen=True, slots=True)
class LockTarget:
    """`alias` is migrated; the lock and the statements go to `way`, which is the same alias or the direct one.

    `test`: somebody has given the alias another database since the start, as test runners do.
    """

    alias: str
    way: str
    test: bool

    @property
    def direct(self) -> bool:
        return self.way != self.alias


def target_for(alias: str) -> LockTarget:
    settings = conf.current()
    now = connections[alias].settings_dict["NAME"]
    test: bool = _configured_names.get(alias, now) != now
    way = settings.migrate["DATABASE"]
    if way is not None and way not in connections.settings:
        raise ImproperlyConfigured(f'RELIABLE_JOBS["MIGRATE"]["DATABASE"] is {way!r}, which is not in DATABASES.')
    if way is None or way == alias or served_by(way) != alias or test:  # the direct way leads to the real database
        way = alias
    return LockTarget(alias, way, test)


def served_by(direct: str) -> str:
    mirrored: str | None = connections.settings[direct]["TEST"]["MIRROR"]
    return mirrored or conf.current().database


def backend_for(target: LockTarget, *, refuse_pooler: bool = True) -> LockBackend | None:
    """Return the lock of that database, not connected yet; None where it has no lock to offer."""
    match connections[target.way].vendor:
        case "postgresql":
            return PostgresLock(
                own_copy(target.way),
                transaction=conf.current().migrate["POOLER"],
                # Behind a pooler a test database has to do with the weaker lock: it has one user.
                refuse_pooler=refuse_pooler and not target.test,
                verify=partial(_compare, target),
            )
        case "mysql":
            return MySQLLock(own_copy(target.way))
        case "sqlite":
            return SQLiteLock(connections[target.way].settings_dict["NAME"])
        case _:
            return None


def _compare(target: LockTarget, lock: PostgresLock) -> None:
    """Look at the place from the migrated alias itself, on a second connection that is open at the same time."""
    if lock.pooled and not target.direct:
        return
    here = lock.row(_PLACE)
    second = own_copy(target.alias, connect_timeout=int(_LOOK))
    try:
        second.ensure_connection()
        with answered_within(second, _LOOK):
            there = second.connection.execute(_PLACE).fetchone()
        if not lock.pooled and lock.row("SELECT pg_backend_pid()")[0] == there[0]:
            lock.found_pooler()
    except Error:
        return  # The application's way is closed, for a pause perhaps. The direct one is as the settings say.
    finally:
        close_quietly(second)
    if target.direct and here[1:] != there[1:]:
        what = "schema" if here[2:] == there[2:] else "database"
        raise ImproperlyConfigured(
            f'RELIABLE_JOBS["MIGRATE"]["DATABASE"] is {target.way!r}, which does not lead to the same {what} as'
            f" {target.alias!r}: {here[2]}, schema {here[1]}, and {there[2]}, schema {there[1]}"
            f"{', on another server' if here[4] != there[4] else ''}. Nothing was migrated."
        )


def own_copy(alias: str, **options: object) -> BaseDatabaseWrapper:
    """A connection of one's own with the parameters of `alias`: not pooled by Django, in autocommit, with keepalives
    unless the project sets its own."""
    wrapper = connections[alias].copy(alias)
    wrapper.inc_thread_sharing()  # the lock's pulse is another thread; they take turns
    wrapper.settings_dict = wrapper.settings_dict | {
        "AUTOCOMMIT": True,
        "CONN_MAX_AGE": None,
        "OPTIONS": _options(wrapper.settings_dict["OPTIONS"], wrapper.vendor) | options,
    }
    return wrapper


def _options(given: dict[str, Any], vendor: str) -> dict[str, Any]:
    if vendor != "postgresql":
        return dict(given)
    kept = {name: value for name, value in given.items() if name not in ("pool", "isolation_level")}
    return {"connect_timeout": 10, "application_name": "migrate", **KEEPALIVES} | kept
