"""Handlers under which a database fails, and what a project does to its connections when they are opened."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection, connections, transaction
from django.db.backends.signals import connection_created

from django_reliable_jobs import JobContext, current_job, job
from django_reliable_jobs.guards import run_exclusive
from django_reliable_jobs.models import GuardClaim
from tests.support.probes.models import Mark

#: While this file exists, new connections of handlers are read-only, as after a failover.
READ_ONLY = os.environ.get("PROBES_READ_ONLY", "")

if READ_ONLY:

    def _as_after_a_failover(sender: Any, connection: Any, **_: Any) -> None:
        ours = connection.settings_dict["OPTIONS"].get("application_name", "")
        if not ours.startswith("reliable_jobs") and Path(READ_ONLY).exists():
            connection.connection.execute("SET default_transaction_read_only = on")

    connection_created.connect(_as_after_a_failover, weak=False)

#: Statements that the project's own query wrapper has seen.
SEEN: list[str] = []

if os.environ.get("PROBES_COUNT_QUERIES"):

    def _count(execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        SEEN.append(sql)
        return execute(sql, params, many, context)

    def _install(sender: Any, connection: Any, **_: Any) -> None:
        if not connection.settings_dict["OPTIONS"].get("application_name", "").startswith("reliable_jobs"):
            connection.execute_wrappers.append(_count)

    connection_created.connect(_install, weak=False)


def backend(alias: str = "default") -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def write() -> int:
    ctx = current_job()
    assert ctx is not None
    Mark.objects.create(label="written", job_id=ctx.job_id, attempt=ctx.attempt)
    return backend()


@job(max_attempts=2, backoff=[0.1])
def writes() -> int:
    return write()


@job(max_attempts=2, backoff=[0.1], name="failover.writes_async")
async def writes_async() -> int:
    return await sync_to_async(write)()


@job(max_attempts=2, backoff=[0.1], isolation="process", name="failover.writes_isolated")
def writes_isolated() -> int:
    return write()


@job(max_attempts=2, backoff=[0.1], atomic=True, name="failover.writes_atomic")
def writes_atomic() -> int:
    return write()


@job(max_attempts=1, name="failover.writes_once")
def writes_once() -> int:
    return write()


@job(max_attempts=2, backoff=[60], name="failover.fails")
def fails(how: str) -> None:
    """An error that only looks like the infrastructure's, or is it."""
    if how == "its own connection ended":
        end("default")
    elif how == "it wants a read-only transaction":
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION READ ONLY")
            Mark.objects.create(label="refused")
    elif how == "another database ended":
        end("other")
    elif how == "another database ended, wrapped":
        try:
            end("other")
        except DatabaseError as error:
            raise ValueError("the ledger is gone") from error
    elif how == "its own connection ended, wrapped":
        try:
            end("default")
        except DatabaseError as error:
            raise ValueError("the ledger is gone") from error
    elif how == "the lease of its guard is lost":
        run_exclusive(f"failover {current_id()}", 1, _loses_its_lease)
    elif how == "a statement that takes too long":
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 1")
            cursor.execute("SELECT pg_sleep(10)")


def current_id() -> int:
    ctx = current_job()
    assert ctx is not None
    return ctx.job_id


def _loses_its_lease() -> None:
    GuardClaim.objects.filter(key=f"exclusive:failover {current_id()}").delete()
    while True:
        time.sleep(0.01)


def end(alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


@job(max_attempts=1, name="failover.backend_after_an_error")
def backend_after_an_error() -> int:
    found = backend()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM there_is_no_such_table")
    except DatabaseError:
        pass
    return found


@job(max_attempts=1, name="failover.backend_now")
def backend_now() -> int:
    return backend()


def _fail_elsewhere() -> None:
    """An error on the other alias, whose server is silent from then on."""
    from tests.support.probes.jobs import wait_for_mark

    try:
        with connections["other"].cursor() as cursor:
            cursor.execute("SELECT * FROM there_is_no_such_table")
    except DatabaseError:
        Mark.objects.create(label="failed elsewhere")
        wait_for_mark("frozen")
        raise


@job(max_attempts=1, name="failover.fails_elsewhere")
def fails_elsewhere() -> None:
    _fail_elsewhere()


@job(max_attempts=1, name="failover.fails_elsewhere_async")
async def fails_elsewhere_async() -> None:
    await sync_to_async(_fail_elsewhere)()


@job(max_attempts=1, isolation="process", name="failover.fails_elsewhere_isolated")
def fails_elsewhere_isolated() -> None:
    _fail_elsewhere()


@job(max_attempts=1, name="failover.isolated_noop", isolation="process")
def isolated_noop() -> None:
    pass


@job(max_attempts=1, name="failover.seen")
def seen() -> int:
    Mark.objects.exists()
    return len(SEEN)


@job(max_attempts=1, name="failover.leaves_a_schema")
def leaves_a_schema() -> str:
    other: Any = connections["other"]
    before: str = other.schema
    other.set_schema("pg_catalog")
    backend("other")
    return before


@job(max_attempts=3, atomic=True, takes_context=True, name="failover.has_state")
def has_state(ctx: JobContext) -> Any:
    Mark.objects.create(label="has state", job_id=ctx.job_id)
    found = ctx.state
    ctx.checkpoint(1)
    return found


@job(max_attempts=3, atomic=True, name="failover.holds")
def holds(seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [seconds])
