"""A job's moments stay within the calendar that Python has: the years 1 to 9999.

What raw SQL has written beyond it is mended first, in batches: with one such row the constraint could not be made, and NOT VALID
would refuse every UPDATE of it. The lock that adding it takes is waited for in short tries, since everybody else stands in
line behind the one who waits; the rows are validated without it. An interrupted run is repeated from the beginning.
"""

from __future__ import annotations

import datetime
import time
from typing import Any

from django.db import OperationalError, migrations, models, transaction

TABLE, NAME = "django_reliable_jobs_job", "reliable_jobs_calendar"
MOMENTS = (
    "run_at", "expires_at", "locked_until", "cancel_requested_at", "scheduled_for", "unknown_since", "created_at", "started_at",
    "first_started_at", "finished_at",
)  # fmt: skip
CALENDAR = (datetime.datetime(1, 1, 1, tzinfo=datetime.UTC), datetime.datetime.max.replace(tzinfo=datetime.UTC))
FIRST, LAST = (f"timestamptz '{edge}'" for edge in CALENDAR)

#: Rows of one batch; milliseconds of one try to get the lock, seconds between two tries, and tries.
BATCH = 20_000
LOCK_WAIT_MS, PAUSE, TRIES = 500, 1.0, 600


def mend(connection: Any) -> None:
    """Bring the moments into the calendar, a batch of rows and a transaction at a time."""
    changes = ", ".join(
        f"{name} = CASE WHEN {name} < {FIRST} THEN {FIRST} WHEN {name} > {LAST} THEN {LAST} ELSE {name} END" for name in MOMENTS
    )
    outside = " OR ".join(f"{name} NOT BETWEEN {FIRST} AND {LAST}" for name in MOMENTS)
    batch = f"SELECT min(id), max(id) FROM (SELECT id FROM {TABLE} WHERE id > %s ORDER BY id LIMIT {BATCH}) AS b"  # noqa: S608
    update = f"UPDATE {TABLE} SET {changes} WHERE id BETWEEN %s AND %s AND ({outside})"  # noqa: S608
    last = -(2**63)
    with connection.cursor() as cursor:
        while True:
            cursor.execute(batch, [last])
            first, last = cursor.fetchone()
            if last is None:
                return
            cursor.execute(update, [first, last])


class AddConstraintWithoutStandstill(migrations.AddConstraint):
    """As its parent where that is not PostgreSQL."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        model = to_state.apps.get_model(app_label, self.model_name)
        if connection.vendor != "postgresql" or schema_editor.collect_sql:
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        elif self.allow_migrate_model(connection.alias, model):
            mend(connection)
            if not self._is_there(connection):
                self._add(schema_editor, str(self.constraint.create_sql(model, schema_editor)))
            mend(connection)  # what was written meanwhile
            schema_editor.execute(f"ALTER TABLE {TABLE} VALIDATE CONSTRAINT {NAME}", params=None)

    def _is_there(self, connection: Any) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT FROM pg_constraint WHERE conname = '{NAME}' AND conrelid = '{TABLE}'::regclass")
            return cursor.fetchone() is not None

    def _add(self, schema_editor: Any, sql: str) -> None:
        alias = schema_editor.connection.alias
        for tried in range(1, TRIES + 1):
            try:
                with transaction.atomic(using=alias):
                    schema_editor.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}", params=None)
                    schema_editor.execute(f"{sql} NOT VALID", params=None)
                return
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", None) != "55P03" or tried == TRIES:  # lock_not_available
                    raise
            time.sleep(PAUSE)


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("django_reliable_jobs", "0006_release_names_kept_pauses"),
    ]

    operations = [
        AddConstraintWithoutStandstill(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(*sorted((f"{name}__range", CALENDAR) for name in MOMENTS)), name=NAME
            ),
        ),
    ]
