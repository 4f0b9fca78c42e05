"""This package, as a project uses it: `enqueue()`, `enqueue_many()` and `manage.py jobworker`.

Options: `RELIABLE_JOBS` (the settings dict), `arguments` (of jobworker), `handler` (what "noop" is).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from benchmarks.contenders.base import BaseContender, batches, options


class Contender(BaseContender):
    packages = ("django-reliable-jobs", "Django", "psycopg")
    # By the claim's own index: the million other rows of the deep runs are not looked at.
    unfinished = """
        SELECT (SELECT count(*) FROM django_reliable_jobs_job WHERE status = 'RUNNING')
             + (SELECT count(*) FROM django_reliable_jobs_job
                 WHERE status IN ('QUEUED', 'FAILED') AND queue = 'default' AND priority = 0 AND run_at <= now())"""

    short_left = "SELECT count(*) FROM django_reliable_jobs_job WHERE name = 'benchmarks.noop' AND status <> 'DONE'"
    # Each claim of a job draws a fencing token.
    claims = "SELECT last_value FROM django_reliable_jobs_fencing_token"

    def connect(self) -> None:
        import django

        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
        django.setup()

    def setup(self) -> None:
        from django.core.management import call_command

        self.connect()
        call_command("migrate", verbosity=0, interactive=False)

    def close(self) -> None:
        from django.db import connections

        connections.close_all()

    def enqueue(self, number: int, kind: str = "noop") -> None:
        from benchmarks import jobs

        getattr(jobs, options().get("handler", kind) if kind == "noop" else kind).enqueue(number)

    def enqueue_many(self, numbers: Sequence[int], kind: str = "noop") -> None:
        from benchmarks import jobs

        definition = getattr(jobs, options().get("handler", kind) if kind == "noop" else kind)
        for batch in batches(numbers):
            definition.enqueue_many([(number,) for number in batch])

    def hold(self, jobs: int, seconds: float) -> None:
        from benchmarks.jobs import hold

        hold.enqueue_many([(seconds,)] * jobs)

    def prefill(self, future: int, finished: int, priority: int) -> None:
        from django.db import connection

        self.connect()
        common = """
            INSERT INTO django_reliable_jobs_job (
                name, queue, args, kwargs, reason, attempts, max_attempts, losses, timeout, unique_until_start,
                created_at, status, priority, run_at, fencing_token, locked_by, started_at, finished_at)
            SELECT 'benchmarks.noop', 'default', jsonb_build_array(n), '{}', '', 0, 5, 0, 3600, false, now(), """
        with connection.cursor() as cursor:
            cursor.execute(
                f"{common} 'QUEUED', %s, now() + interval '1 day' + n * interval '1 second', 0, NULL, NULL, NULL"
                " FROM generate_series(1, %s) AS n",
                [priority, future],
            )
            cursor.execute(
                f"{common} 'DONE', 0, now() - interval '1 hour', n, gen_random_uuid(), now(), now()"
                " FROM generate_series(1, %s) AS n",
                [finished],
            )

    def work(self) -> None:
        from django.core.management import execute_from_command_line

        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
        sys.argv = ["manage.py", "jobworker", "--verbosity", "0", *options().get("arguments", [])]
        execute_from_command_line(sys.argv)
