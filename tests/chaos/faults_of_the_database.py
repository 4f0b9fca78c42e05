"""Faults of the database that no connection notices by itself: it refuses to write, rights are gone, rows are poisoned."""

from __future__ import annotations

import random
import time
import uuid

import psycopg

from tests.chaos.arena import Arena
from tests.chaos.faults import server
from tests.chaos.nemesis import fault

#: Rows as only SQL can write them: columns and their values.
POISON: tuple[dict[str, str], ...] = (
    {"run_at": "'infinity'"},
    {"run_at": "'-infinity'"},
    {"run_at": "'294276-12-31 23:59:59+00'"},
    {"run_at": "'4713-01-01 00:00:00+00 BC'"},
    {"expires_at": "'infinity'"},
    {"expires_at": "'294276-12-31 23:59:59+00'"},
    {"created_at": "'-infinity'", "scheduled_for": "'infinity'"},
    {"timeout": "'NaN'"},
    {"timeout": "'infinity'"},
    {"timeout": "-1"},
    {"attempts": "2147483646", "max_attempts": "2147483647"},
    {"losses": "2147483646"},
    {"name": "'no such job'"},
    {"name": "E'\\u202e\\n'"},
    {"queue": "E'a\\nqueue'", "name": "''"},
    {"args": """'{"not": "a list"}'"""},
    {"args": """'[{"$datetime": "no moment"}]'"""},
    {"args": """'[{"$unknown": 1}]'"""},
    {"kwargs": "'[]'"},
    {"kwargs": """'{"no": "such parameter"}'"""},
)


@fault
def read_only(arena: Arena, dice: random.Random) -> None:
    """As after a fail-over: connections stay open, and every write is refused; then it is well again."""
    with server, arena.timeline.incident("read-only", "every connection"):
        with psycopg.connect(arena.server.url(), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            admin.execute("SELECT pg_reload_conf()")
            try:
                time.sleep(arena.lease * dice.uniform(0.5, 1.5))
            finally:
                admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
                admin.execute("SELECT pg_reload_conf()")


@fault
def rights_lost(arena: Arena, dice: random.Random) -> None:
    """The role of some pods may no longer do anything with the tables, for longer than a lease."""
    hit = {pid for number in arena.least for pid in arena.fleet.pods[number].processes()}
    with arena.timeline.incident("rights lost", f"pods {sorted(arena.least)}", hit or None):
        arena.rights(granted=False)
        try:
            time.sleep(arena.lease * dice.uniform(1.1, 1.6))
        finally:
            arena.rights(granted=True)


@fault
def poison_rows(arena: Arena, dice: random.Random) -> None:
    """Rows that raw SQL wrote, in the way of everything; those that the schema refuses are not there."""
    mark = f"poison {uuid.uuid4()}"
    with arena.timeline.incident("poison rows", "the jobs table", set()) as one:
        written = sum(
            arena.through_faults(lambda at=at: write(arena, f"{mark} {at}", POISON[at])) for at in range(len(POISON))
        )
        one.target = f"{written} rows"
        time.sleep(arena.lease)
        arena.wait(f"the end of {mark}", lambda: arena.through_faults(lambda: are_gone(arena, mark)), pause=0.2)


def write(arena: Arena, key: str, changes: dict[str, str]) -> bool:
    """Whether the schema takes such a row."""
    columns = {
        "name": "'workload.quick'", "queue": "'default'", "args": "'[]'", "kwargs": "'{}'", "status": "'QUEUED'",
        "reason": "''", "priority": "100", "run_at": "now() - interval '1 day'", "attempts": "0", "max_attempts": "2",
        "losses": "0", "fencing_token": "0", "unique_until_start": "false", "created_at": "now()",
        "idempotency_key": f"'{key}'",
    } | changes  # fmt: skip
    try:
        arena.execute(
            f"INSERT INTO django_reliable_jobs_job ({', '.join(columns)}) VALUES ({', '.join(columns.values())})"
        )
    except psycopg.errors.IntegrityError:
        return False
    return True


def are_gone(arena: Arena, mark: str) -> bool:
    """Take the rows away that are not RUNNING just now; whether they were the last."""
    arena.execute(
        f"WITH gone AS (DELETE FROM django_reliable_jobs_job WHERE starts_with(idempotency_key, '{mark}')"
        " AND status <> 'RUNNING' RETURNING id)"
        " DELETE FROM django_reliable_jobs_jobattempt WHERE job_id IN (SELECT id FROM gone)"
    )
    return not arena.query("SELECT id FROM django_reliable_jobs_job WHERE starts_with(idempotency_key, %s)", mark)
