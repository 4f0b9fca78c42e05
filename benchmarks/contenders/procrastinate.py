"""Procrastinate: one worker with coroutine tasks, LISTEN/NOTIFY on, finished jobs kept: its defaults.

Options: `concurrency`; `rescue`, seconds: its documented periodic task puts the jobs of workers back that have been silent
for so long. Without it a killed worker's jobs stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.contenders.base import BaseContender, batches, dsn, options
from benchmarks.marks import anap, mark


class Contender(BaseContender):
    packages = ("procrastinate", "psycopg")
    requirements = ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9")
    unfinished = """
        SELECT count(*) FROM procrastinate_jobs
         WHERE status IN ('todo', 'doing') AND task_name = 'noop' AND (scheduled_at IS NULL OR scheduled_at <= now())"""

    def _app(self) -> Any:
        from procrastinate import App, PsycopgConnector

        app: Any = App(connector=PsycopgConnector(conninfo=dsn()))
        rescue = options().get("rescue")

        @app.task(name="noop")
        async def noop(number: int) -> None:
            mark(number)

        @app.task(name="nap")
        async def nap(number: int) -> None:
            await anap(number)

        if rescue:

            @app.periodic(cron="* * * * * */5")
            @app.task(name="rescue", queueing_lock="rescue", pass_context=True)
            async def put_back(context: Any, timestamp: int) -> None:
                for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=rescue):
                    await app.job_manager.retry_job(job)

        self.tasks = {"noop": noop, "nap": nap}
        return app

    def setup(self) -> None:
        app = self._app()
        with app.open():
            app.schema_manager.apply_schema()

    def connect(self) -> None:
        self.app = self._app()
        self.app.open()

    def close(self) -> None:
        self.app.close()

    def enqueue(self, number: int, kind: str = "noop") -> None:
        self.tasks[kind].defer(number=number)

    def enqueue_many(self, numbers: Sequence[int], kind: str = "noop") -> None:
        for batch in batches(numbers):
            self.tasks[kind].batch_defer(*({"number": number} for number in batch))

    def prefill(self, future: int, finished: int, priority: int) -> None:
        import psycopg

        with psycopg.connect(dsn(), autocommit=True) as connection:
            # Its triggers would write the events one by one; they are written below.
            connection.execute("SET session_replication_role = replica")
            connection.execute(
                "INSERT INTO procrastinate_jobs (queue_name, task_name, args, priority, scheduled_at)"
                " SELECT 'default', 'noop', jsonb_build_object('number', n), %s,"
                " now() + interval '1 day' + n * interval '1 s' FROM generate_series(1, %s) AS n",
                (priority, future),
            )
            connection.execute(
                "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, attempts)"
                " SELECT 'default', 'noop', jsonb_build_object('number', n), 'succeeded', 1 FROM generate_series(1, %s) AS n",
                (finished,),
            )
            connection.execute(
                "INSERT INTO procrastinate_events (job_id, type)"
                " SELECT job.id, event.type::procrastinate_job_event_type FROM procrastinate_jobs AS job"
                " JOIN (VALUES ('todo', 'deferred'), ('todo', 'scheduled'), ('succeeded', 'deferred'),"
                " ('succeeded', 'started'), ('succeeded', 'succeeded')) AS event (status, type)"
                " ON event.status = job.status::text"
            )

    def work(self) -> None:
        rescue = options().get("rescue")
        beats = {"update_heartbeat_interval": rescue / 3, "stalled_worker_timeout": rescue} if rescue else {}
        self._app().run_worker(concurrency=options().get("concurrency", 8), **beats)
