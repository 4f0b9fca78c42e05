"""The database backend of Django's own Tasks and its `db_worker`, which runs one task at a time and polls every second.

It has no bulk call and takes nothing back from a killed worker. Options: `processes`, that many `db_worker`s.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from benchmarks.contenders.base import BaseContender, database, options

TASKS = "benchmarks.contenders.django_tasks_db_tasks"
COLUMNS = (
    "id, status, enqueued_at, args_kwargs, priority, task_path, worker_ids, queue_name, backend_name, run_after,"
    " exception_class_path, traceback, started_at, finished_at"
)


class Contender(BaseContender):
    packages = ("django-tasks-db", "Django", "psycopg")
    requirements = ("django-tasks-db==0.13.0", "django==6.1.3", "psycopg[binary]==3.3.9")
    # What may run at once is stored with a time in the far future.
    unfinished = """
        SELECT count(*) FROM django_tasks_database_dbtaskresult
         WHERE status IN ('READY', 'RUNNING') AND (run_after > '9000-01-01' OR run_after <= now())"""

    def connect(self) -> None:
        import django
        from django.conf import settings

        where = database()
        settings.configure(
            SECRET_KEY="no secret: for the benchmarks only",
            USE_TZ=True,
            INSTALLED_APPS=["django_tasks_db"],
            DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
            TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
            DATABASES={
                "default": {
                    "ENGINE": "django.db.backends.postgresql", "NAME": where["dbname"], "USER": where["user"],
                    "HOST": where["host"], "PORT": where["port"], "CONN_MAX_AGE": None,
                }
            },
        )  # fmt: skip
        django.setup()

    def setup(self) -> None:
        from django.core.management import call_command

        self.connect()
        call_command("migrate", verbosity=0, interactive=False)

    def enqueue(self, number: int, kind: str = "noop") -> None:
        from benchmarks.contenders import django_tasks_db_tasks as tasks

        getattr(tasks, kind).enqueue(number)

    def fill(self, numbers: Sequence[int], kind: str = "noop") -> None:
        """Only to make jobs that are drained later: as `enqueue` stores them, a thousand rows at a time."""
        from django.utils import timezone
        from django_tasks_db.models import DBTaskResult, get_date_max

        DBTaskResult.objects.bulk_create(
            [
                DBTaskResult(
                    args_kwargs={"args": [number], "kwargs": {}}, priority=0, task_path=f"{TASKS}.{kind}",
                    queue_name="default", backend_name="default", run_after=get_date_max(), enqueued_at=timezone.now(),
                )
                for number in numbers
            ],
            batch_size=1000,
        )  # fmt: skip

    def enqueue_many(self, numbers: Sequence[int], kind: str = "noop") -> None:
        raise NotImplementedError

    def prefill(self, future: int, finished: int, priority: int) -> None:
        from django.db import connection

        self.connect()
        kinds: list[tuple[str, str, str, int]] = [
            ("READY", "now() + interval '1 day' + n * interval '1 s'", "NULL::timestamptz", future),
            ("SUCCESSFUL", "'9999-01-01'", "now()", finished),
        ]
        with connection.cursor() as cursor:
            for status, run_after, done, rows in kinds:
                cursor.execute(
                    f"INSERT INTO django_tasks_database_dbtaskresult ({COLUMNS})"
                    f" SELECT gen_random_uuid(), '{status}', now(),"
                    " jsonb_build_object('args', jsonb_build_array(n), 'kwargs', jsonb_build_object()), %s,"
                    f" '{TASKS}.noop', '[]', 'default', 'default', {run_after}, '', '', {done}, {done}"
                    " FROM generate_series(1, %s) AS n",
                    [priority, rows],
                )

    def work(self) -> None:
        for _ in range(options().get("processes", 1) - 1):
            if os.fork() == 0:
                break
        self.connect()
        from django.core.management import call_command
        from django.utils.crypto import get_random_string

        call_command("db_worker", verbosity=0, startup_delay=False, reload=False, worker_id=get_random_string(32))
