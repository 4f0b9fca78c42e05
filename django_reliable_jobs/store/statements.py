"""Loads the statements and runs them on an alias."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from django.conf import settings
from django.db import connections
from django.utils import timezone
from psycopg import RawCursor

from django_reliable_jobs.connections.statement_text import Row, text_of
from django_reliable_jobs.store.prepared_insert import PreparingCursor, may_prepare
from django_reliable_jobs.values.moments import shown


@cache
def load(name: str) -> str:
    """The text of the store's statement `name`."""
    return text_of("django_reliable_jobs.store", name)


def load_all() -> None:
    """Before a process forks, or lives on while the package is upgraded under it: statements go with the code that is loaded."""
    for name in names():
        load(name)


def names() -> list[str]:
    """Of all statements of the store, and of their parts: as `load` takes them."""
    found: list[str] = []
    rooms = [("", files("django_reliable_jobs.store").joinpath("sql"))]
    while rooms:
        above, folder = rooms.pop()
        for each in folder.iterdir():
            if each.is_dir():
                rooms.append((f"{above}{each.name}/", each))
            elif each.name.endswith(".sql"):
                found.append(above + each.name.removesuffix(".sql"))
    return sorted(found)


def run(alias: str, name: str, params: Mapping[str, Any]) -> list[Row]:
    """Execute a statement that returns rows, in the alias' current transaction or, without one, in its own."""
    with connections[alias].cursor() as cursor:
        cursor.execute(load(name), params)
        rows: list[Row] = cursor.fetchall()
    return rows


@cache
def _positional(text: str) -> tuple[str, tuple[str, ...]]:
    """The statement with `$1`, `$2`, … where it names its parameters, and their names in that order."""
    names: dict[str, int] = {}
    text = re.sub(r"%\((\w+)\)s", lambda found: f"${names.setdefault(found[1], len(names) + 1)}", text)
    return text, tuple(names)


def run_positional(alias: str, name: str, params: Mapping[str, Any], *, prepare: bool = False) -> list[Row]:
    """As `run`, for what runs all the time: psycopg need not look for the names and put the values in.

    PostgreSQL only. The server binds the parameters. Have it give times `AT TIME ZONE 'UTC'`, for `as_django`: a `timestamptz`
    comes in the connection's zone, not Django's. `prepare`: also on a connection that is not ours, see `prepared_insert`.
    """
    connection = connections[alias]
    if connection.queries_logged:
        return run(alias, name, params)  # Django's log of queries puts the values in by their names
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    text, names = _positional(load(name))
    values = [params[name] for name in names]
    with connection.wrap_database_errors:
        kind = PreparingCursor if prepare and may_prepare(connection.connection) else RawCursor
        raw: Any = kind(connection.connection)
    # Through Django's cursor, for six microseconds: tracing tools patch it, and would not see an enqueue otherwise.
    with connection.make_cursor(raw) as cursor:
        cursor.execute(text, values)
        rows: list[Row] = cursor.fetchall()
    return rows


def change(alias: str, name: str, params: Mapping[str, Any]) -> int:
    """Execute a statement that returns no rows; how many it changed."""
    with connections[alias].cursor() as cursor:
        cursor.execute(load(name), params)
        changed: int = cursor.rowcount
    return changed


def as_django(utc: datetime) -> datetime:
    """A time that a statement gave in UTC, as Django's own are: aware, or local without `USE_TZ`."""
    aware = utc.replace(tzinfo=UTC)
    return aware if settings.USE_TZ else timezone.make_naive(shown(aware), timezone.get_default_timezone())
