"""Loads the statements and runs them on an alias."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from django.db import connections
from psycopg import RawCursor

Row = tuple[Any, ...]


@cache
def load(name: str) -> str:
    """The text of the store's statement `name`."""
    return text_of("django_reliable_jobs.store", name)


def text_of(package: str, name: str) -> str:
    """The text of `sql/<name>.sql` of a package, without its comment lines, which would travel with every execution."""
    text = files(package).joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))


def load_all() -> None:
    """Before a process forks, or lives on while the package is upgraded under it: statements go with the code that is loaded."""
    for file in files("django_reliable_jobs.store").joinpath("sql").iterdir():
        if file.name.endswith(".sql"):
            load(file.name.removesuffix(".sql"))


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


def run_positional(alias: str, name: str, params: Mapping[str, Any]) -> list[Row]:
    """As `run`, for the statement that runs all the time: psycopg looks for the names in a long one at each execution.

    PostgreSQL only. The server binds the parameters. A `timestamptz` comes in the connection's zone, not Django's.
    """
    connection = connections[alias]
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    text, names = _positional(load(name))
    raw: Any = RawCursor(connection.connection)
    make = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
    with make(raw) as cursor:
        cursor.execute(text, [params[name] for name in names])
        rows: list[Row] = cursor.fetchall()
    return rows


def change(alias: str, name: str, params: Mapping[str, Any]) -> int:
    """Execute a statement that returns no rows; how many it changed."""
    with connections[alias].cursor() as cursor:
        cursor.execute(load(name), params)
        changed: int = cursor.rowcount
    return changed
