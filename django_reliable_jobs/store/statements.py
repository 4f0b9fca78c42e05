"""Loads the statements and runs them on an alias."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from django.db import connections

Row = tuple[Any, ...]


@cache
def load(name: str) -> str:
    """The text of `sql/<name>.sql`, without its comment lines, which would travel with every execution."""
    text = files("django_reliable_jobs.store").joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))


def run(alias: str, name: str, params: Mapping[str, Any]) -> list[Row]:
    """Execute a statement that returns rows, in the alias' current transaction or, without one, in its own."""
    with connections[alias].cursor() as cursor:
        cursor.execute(load(name), params)
        rows: list[Row] = cursor.fetchall()
    return rows


def change(alias: str, name: str, params: Mapping[str, Any]) -> int:
    """Execute a statement that returns no rows; how many it changed."""
    with connections[alias].cursor() as cursor:
        cursor.execute(load(name), params)
        changed: int = cursor.rowcount
    return changed
