"""Handlers that leave something behind on their connection or thread, and those that look what they find there."""

from __future__ import annotations

import contextvars
import decimal
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection, transaction
from django.utils import timezone, translation

from django_reliable_jobs import job
from tests.support.probes.models import Mark, Parent

SET_BY_A_JOB: contextvars.ContextVar[str] = contextvars.ContextVar("set_by_a_job", default="nothing")

#: Each runs on the slot's connection; none of it may be there for the next job.
STATEMENTS = {
    "statement_timeout": "SET statement_timeout = 1234",
    "session": "SET SESSION lock_timeout = 1234",
    "comment": "/* tuning */ SET statement_timeout = 1234",
    "two statements": "SELECT 1; SET statement_timeout = 1234",
    "line comment": "-- tuning\nSET statement_timeout = 1234",
    "search_path": "SET search_path = pg_catalog",
    "set_config": "SELECT set_config('search_path', 'pg_catalog', false)",
    "time zone": "SET TIME ZONE 'Asia/Kathmandu'",
    "role": "SET ROLE pg_monitor",
    "isolation": "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "read only": "SET default_transaction_read_only = on",
    "temporary table": "CREATE TEMPORARY TABLE left_behind AS SELECT 1 AS x",
    "select into temp": "SELECT 1 AS x INTO TEMP left_behind",
    "advisory lock": "SELECT pg_advisory_lock(4711)",
    "prepared": "PREPARE left_behind AS SELECT 1",
    "listen": "LISTEN left_behind",
    "held cursor": "DECLARE left_behind CURSOR WITH HOLD FOR SELECT 1",
    "begin": "BEGIN",
}


@job(max_attempts=1)
def leave(what: str) -> None:
    """Leave the connection as `what` says, and end without complaint unless `what` ends with "and raise"."""
    kind = what.removesuffix(" and raise")
    if kind in STATEMENTS:
        with connection.cursor() as cursor:
            cursor.execute(STATEMENTS[kind])
    elif kind == "raw set":
        connection.ensure_connection()
        connection.connection.execute("SET search_path = pg_catalog")
    elif kind == "open atomic":
        transaction.atomic().__enter__()
        Mark.objects.create(label="in an open atomic")
    elif kind == "lock table":
        transaction.atomic().__enter__()
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE probes_mark IN ACCESS EXCLUSIVE MODE")
    elif kind == "autocommit off":
        transaction.set_autocommit(False)
        Mark.objects.create(label="without autocommit")
    elif kind == "integrity error swallowed outside":
        try:
            with transaction.atomic():
                parent = Parent.objects.create()
                Parent.objects.create(pk=parent.pk)
        except DatabaseError:
            pass
    elif kind == "error swallowed inside":
        with transaction.atomic():
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1/0")
            except DatabaseError:
                pass
            Mark.objects.create(label="after the error")
    elif kind == "error swallowed without autocommit":
        transaction.set_autocommit(False)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1/0")
        except DatabaseError:
            pass
    elif kind == "cursor mid-transaction":
        rows = Mark.objects.all().iterator(chunk_size=1)
        transaction.atomic().__enter__()
        next(rows, None)
        leave.__dict__["kept"] = rows
    elif kind == "copy":
        connection.ensure_connection()
        copy = connection.connection.cursor().copy("COPY probes_mark TO STDOUT")
        copy.__enter__()
        leave.__dict__["kept"] = copy
    elif kind == "closed":
        connection.close()
    elif kind == "closed in atomic":
        transaction.atomic().__enter__()
        connection.close()
    elif kind == "broken":
        connection.ensure_connection()
        connection.connection.close()
    elif kind == "execute wrapper":
        connection.execute_wrappers.append(_refuse)
    elif kind == "debug cursor":
        connection.force_debug_cursor = True
    elif kind == "context":
        timezone.activate("Asia/Kathmandu")
        translation.activate("de")
        SET_BY_A_JOB.set("something")
        decimal.getcontext().prec = 3
    else:
        raise AssertionError(what)
    if what.endswith("and raise"):
        raise ValueError(f"after {kind}")


def _refuse(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    raise AssertionError("the statements of a later job go through what an earlier one installed")


@job(max_attempts=1)
def report_session() -> dict[str, Any]:
    """What the next job finds."""
    in_atomic, autocommit = connection.in_atomic_block, connection.get_autocommit()
    logged = len(connection.queries_log)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('statement_timeout'), current_setting('lock_timeout'),"
            " current_setting('search_path'), current_setting('TimeZone'), current_user = session_user,"
            " current_setting('default_transaction_isolation'), current_setting('default_transaction_read_only'),"
            " to_regclass('pg_temp.left_behind') IS NULL,"
            " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),"
            " (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()),"
            " (SELECT count(*) FROM pg_cursors WHERE name = 'left_behind'), pg_backend_pid()"
        )
        row = cursor.fetchone()
    names = ("statement_timeout", "lock_timeout", "search_path", "time zone", "own role", "isolation", "read only",
             "no temporary table", "advisory locks", "prepared", "channels", "cursors", "backend")  # fmt: skip
    Mark.objects.create(label="reported")
    return dict(zip(names, row, strict=True)) | {
        "in atomic": in_atomic, "autocommit": autocommit, "queries logged": logged,
        "debug cursor": connection.force_debug_cursor, "status": connection.connection.info.transaction_status.name,
    }  # fmt: skip


def _leaks() -> dict[str, Any]:
    return {
        "time zone": timezone.get_current_timezone_name(),
        "language": translation.get_language(),
        "variable": SET_BY_A_JOB.get(),
        "precision": decimal.getcontext().prec,
    }


@job(max_attempts=1)
def report_leaks() -> dict[str, Any]:
    return _leaks()


@job(max_attempts=1)
async def leave_async() -> None:
    timezone.activate("Asia/Kathmandu")
    translation.activate("de")
    SET_BY_A_JOB.set("something")
    await sync_to_async(translation.activate)("fr")


@job(max_attempts=1)
async def report_leaks_async() -> list[dict[str, Any]]:
    return [_leaks(), await sync_to_async(_leaks)()]


@job
def counts_rows(number: int) -> int:
    Mark.objects.create(label=f"counted {number % 10}")
    return len(connection.queries_log)


@job
async def counts_rows_async(number: int) -> int:
    await Mark.objects.acreate(label=f"counted {number % 10}")
    return await sync_to_async(lambda: len(connection.queries_log))()


@job(max_attempts=1)
async def backend_async() -> int:
    def ask() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    return await sync_to_async(ask)()
