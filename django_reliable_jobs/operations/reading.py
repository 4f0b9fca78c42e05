"""Runs the statements of this room, all of which only read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from django.db import connections

from django_reliable_jobs.connections.statement_text import Row, text_of


@cache
def load(name: str) -> str:
    """The text of the statement `name`."""
    return text_of("django_reliable_jobs.operations", name)


def read(alias: str, name: str, params: Mapping[str, Any]) -> list[Row]:
    """The rows of a statement."""
    with connections[alias].cursor() as cursor:
        cursor.execute(load(name), params)
        rows: list[Row] = cursor.fetchall()
    return rows
