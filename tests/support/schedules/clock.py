"""The seam for the database's clock: a schema whose functions stand before `pg_catalog`'s in the search path.

Statements that ask for `statement_timestamp()` or `clock_timestamp()` get the time of the tests, in a session whose search
path is `SEARCH_PATH`; no product code knows of it. The functions are as volatile as the real ones, so that the same
indexes are used. `now()` and `CURRENT_TIMESTAMP` are not shifted: the package does not use them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from django.db import connection

SEARCH_PATH = "shifted,pg_catalog,public"

#: For processes of the test project.
ENVIRONMENT = {"DATABASE_OPTIONS": json.dumps({"options": f"-c search_path={SEARCH_PATH}"})}

FUNCTION = """
CREATE OR REPLACE FUNCTION shifted.{name}() RETURNS timestamptz LANGUAGE sql {volatility} PARALLEL SAFE AS $$
    SELECT '{now}'::timestamptz + {factor} * (pg_catalog.{name}() - '{since}'::timestamptz)
$$
"""


class DatabaseClock:
    """The shifted time of a database. `set` changes it for all sessions at once, when the caller commits."""

    def __init__(self, now: datetime, factor: float = 0.0) -> None:
        with connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA IF NOT EXISTS shifted")
        self.set(now, factor)

    def set(self, now: datetime, factor: float = 0.0) -> None:
        """It is `now`, and goes on `factor` times as fast as the real clock (0: it stands still)."""
        assert now.utcoffset() is not None
        self._set_at = now
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_catalog.clock_timestamp()::text")
            since = cursor.fetchone()[0]
            for name, volatility in (("statement_timestamp", "STABLE"), ("clock_timestamp", "VOLATILE")):
                cursor.execute(
                    FUNCTION.format(name=name, volatility=volatility, now=now.isoformat(), factor=factor, since=since)
                )

    def stop(self, ahead: timedelta) -> datetime:
        """Let it stand still, so far ahead of where it is by now that no session has seen a later time."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT shifted.clock_timestamp()")
            [now] = cursor.fetchone()
        self.set(now.replace(microsecond=0) + ahead)
        return self._set_at

    def advance(self, **duration: float) -> datetime:
        """For a clock that stands still: let so much time pass."""
        self.set(self._set_at + timedelta(**duration))
        return self._set_at

    @property
    def now(self) -> datetime:
        """Of a clock that stands still."""
        return self._set_at

    def drop(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DROP SCHEMA IF EXISTS shifted CASCADE")


def utc(text: str) -> datetime:
    """From "2026-03-08 07:00"."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
