"""What raw SQL can write into a row and no host can represent, or calculate with."""

from __future__ import annotations

from django.db import connection

MOMENTS = (
    "-infinity",
    "4700-01-01 BC",
    "0001-01-01 00:00+14",
    "9999-12-31 23:59:59.999999-12",
    "200000-01-01",
    "infinity",
)
COLUMNS = (
    "run_at", "expires_at", "locked_until", "cancel_requested_at", "scheduled_for", "unknown_since", "created_at", "started_at",
    "first_started_at", "finished_at",
)  # fmt: skip
NUMBERS = {
    "attempts": ("2147483647", "-2147483648"),
    "max_attempts": ("2147483647", "-2147483648", "0"),
    "losses": ("2147483647", "-2147483648"),
    "infrastructure_failures": ("32767", "-32768"),
    "timeout": ("'NaN'", "'infinity'", "'-infinity'", "-1", "1e308", "0"),
}
TEXTS = {
    "name": ("''", "repeat('x', 200)", "E'\\x01\\n\\u2028'", "'%s {0} \\'"),
    "queue": ("''", "repeat('q', 100)", "'a, b:1'", "'%s'"),
    "reason": ("repeat('r', 100)",),
    "unique_key": ("''", "repeat('k', 255)"),
    "idempotency_key": ("''",),
    "scope": ("''",),
}
PAYLOADS = (
    "'{}'", "'null'", "'5'", "'\"abc\"'", "'[{\"$date\": \"never\"}]'", "'[{\"$of_tomorrow\": 1}]'",
    "('[' || repeat('9', 5000) || ']')::jsonb",
    "(repeat('[', 3000) || repeat(']', 3000))::jsonb",
)  # fmt: skip

#: SET clauses, each of which poisons a row in one column.
CHANGES = [
    *(f"{column} = '{value}'" for column in COLUMNS for value in MOMENTS),
    *(f"{column} = {value}" for column, values in {**NUMBERS, **TEXTS}.items() for value in values),
    *(f"{column} = {value}" for column in ("args", "kwargs", "result", "progress") for value in PAYLOADS),
    "args = args, result = 'null'", "expires_at = NULL, scheduled_for = run_at",
]  # fmt: skip


def poison(change: str, job_id: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_reliable_jobs_job SET " + change + f" WHERE id = {int(job_id)}")


def drop_the_constraint() -> str:
    """As a row looks that was written before there was one; what makes it again."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'reliable_jobs_calendar'")
        [definition] = cursor.fetchone()
        cursor.execute("ALTER TABLE django_reliable_jobs_job DROP CONSTRAINT reliable_jobs_calendar")
    return f"ALTER TABLE django_reliable_jobs_job ADD CONSTRAINT reliable_jobs_calendar {definition}"
