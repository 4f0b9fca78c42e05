"""The clock of the queue, which is the database's (protocol 1), moved ahead for one test's transaction.

A schema whose functions stand before PostgreSQL's own adds an offset. Schema, search path and offset are the transaction's: a
rollback takes all of it back, and nothing of it is kept in Python.
"""

from __future__ import annotations

from django.db import connections

SCHEMA = "reliable_jobs_clock"
SETTING = "reliable_jobs.ahead"
FUNCTIONS = ("statement_timestamp", "clock_timestamp", "now")


class Clock:
    def __init__(self, alias: str) -> None:
        self._connection = connections[alias]

    def ahead(self) -> float:
        """Seconds."""
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT coalesce(nullif(current_setting(%s, true), ''), '0')::float8", [SETTING])
            found: float = cursor.fetchone()[0]
        return found

    def move(self, ahead: float) -> None:
        """To `ahead` seconds before PostgreSQL's own. Raises `RuntimeError` outside of a transaction."""
        if not self._connection.in_atomic_block:
            raise RuntimeError(
                "run_jobs(advance=...) moves the clock for the test's transaction; use it in a TestCase, or with"
                " pytest-django's `db`."
            )
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT current_schemas(true)::text[], current_setting('search_path')")
            schemas, path = cursor.fetchone()
            if SCHEMA not in schemas:
                self._install(path)
            cursor.execute("SELECT set_config(%s, %s, true)", [SETTING, repr(ahead)])

    def _install(self, path: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            for name in FUNCTIONS:
                cursor.execute(
                    f"CREATE OR REPLACE FUNCTION {SCHEMA}.{name}() RETURNS timestamptz"
                    f" LANGUAGE sql VOLATILE AS $$ SELECT pg_catalog.{name}() + pg_catalog.make_interval("
                    f"secs => pg_catalog.current_setting('{SETTING}')::float8) $$"
                )
            cursor.execute("SELECT set_config(%s, '0', true)", [SETTING])
            cursor.execute("SELECT set_config('search_path', %s, true)", [f"{SCHEMA}, pg_catalog, {path}"])
