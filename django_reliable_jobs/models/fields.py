"""Columns that can be read whatever raw SQL has written into them: one row must not stop who reads others with it.

They are Django's own fields to migrations.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models

from django_reliable_jobs.values.moments import CALENDAR, EARLIEST, LATEST, shown

if TYPE_CHECKING:
    DateTimeField = models.DateTimeField[Any, Any]
else:
    DateTimeField = models.DateTimeField

_IN_UTC = tuple(f"'{edge}'::timestamptz" for edge in CALENDAR)
_IN_ANY_ZONE = tuple(f"'{edge}'::timestamptz" for edge in (EARLIEST, LATEST))


class _MomentField(DateTimeField):
    """A datetime. What Python has no date for (4713 BC, the year 10000, infinity) is read as the nearest one that it has.

    In SQL, where the column is read and nowhere else: filters and orders see what is stored, and use its indexes.
    """

    def deconstruct(self) -> Any:
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.DateTimeField", args, kwargs

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        connection = compiler.connection
        if connection.vendor != "postgresql":
            return sql, params
        low, high = _IN_UTC if connection.timezone_name == "UTC" else _IN_ANY_ZONE
        if "SELECT" in sql:
            # Evaluated once. Not so an aggregate, which cannot stand in a subquery, and which the server evaluates once itself.
            return f"(SELECT {_clamped('m.m', low, high)} FROM (SELECT {sql} AS m) AS m)", params  # noqa: S608
        return _clamped(sql, low, high), [*params, *params, *params] if params else params

    def from_db_value(self, value: datetime | None, expression: Any, connection: Any) -> datetime | None:
        return value if value is None or not settings.USE_TZ else shown(value)


def _clamped(sql: str, low: str, high: str) -> str:
    """LEAST and GREATEST would make a moment of NULL."""
    return f"CASE WHEN {sql} < {low} THEN {low} WHEN {sql} > {high} THEN {high} ELSE {sql} END"


if TYPE_CHECKING:  # what a row's attribute is, type checkers know of Django's own field only
    MomentField = models.DateTimeField
else:
    MomentField = _MomentField


class PayloadField(models.JSONField):
    """JSON. What Python cannot parse (a number of thousands of digits, a nesting of thousands of levels) is read as its text."""

    def deconstruct(self) -> Any:
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return json.dumps(value) if not isinstance(value, str) else value
