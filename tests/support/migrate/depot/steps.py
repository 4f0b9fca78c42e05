"""What the migrations of this app run. What is to go otherwise comes from the environment:

DEPOT_SECONDS   how long the data migration takes
DEPOT_FAIL      the migration that is to fail
DEPOT_ROWS      how many crates there are

A migration waits at its gate while a test keeps that shut: `pg_advisory_lock(GATES + number)`. There is one more before
the first migration, when the migration lock has just been taken, and one behind the last, before it is given back.
"""

from __future__ import annotations

import os
import time
from typing import Any

from django.db import connections

GATES = 7_000_000
FIRST, LAST = 0, 9


def record(number: int, apps: Any, editor: Any) -> None:
    connection = editor.connection
    direct = None
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            direct = cursor.fetchone()[0] == connection.connection.info.backend_pid
        wait_at(number, connection)
    if os.environ.get("DEPOT_FAIL") == str(number):
        raise RuntimeError(f"step {number} fails in process {os.getpid()}")
    event = apps.get_model("depot", "Event")
    event.objects.using(connection.alias).create(what=f"step {number}", alias=connection.alias, direct=direct)


def wait_at(number: int, connection: Any) -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [GATES + number])


def begin(using: str, **_: Any) -> None:
    wait_at(FIRST, connections[using])


def end(using: str, **_: Any) -> None:
    wait_at(LAST, connections[using])


def fill(apps: Any, editor: Any) -> None:
    crate = apps.get_model("depot", "Crate")
    rows = int(os.environ.get("DEPOT_ROWS", "5000"))
    crate.objects.using(editor.connection.alias).bulk_create(crate(label=f"crate {n}") for n in range(rows))
    record(2, apps, editor)


def weigh(apps: Any, editor: Any) -> None:
    """Some seconds of work, batch after batch."""
    crates = apps.get_model("depot", "Crate").objects.using(editor.connection.alias)
    end = time.monotonic() + float(os.environ.get("DEPOT_SECONDS", "0"))
    batch = 0
    while True:
        crates.filter(pk__gt=batch, pk__lte=batch + 100).update(weight=batch)
        batch += 100
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    record(3, apps, editor)


def fifth(apps: Any, editor: Any) -> None:
    record(5, apps, editor)


def last(apps: Any, editor: Any) -> None:
    record(6, apps, editor)
