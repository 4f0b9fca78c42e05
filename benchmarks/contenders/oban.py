"""Oban for Python, on uvloop as its command line runs it: LISTEN/NOTIFY, fetches 5 ms apart, acknowledgements written
together before each fetch. Options: `limit`, the jobs at a time of the one queue; `rescue`, seconds (its default is 300).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from benchmarks.contenders.base import BaseContender, batches, dsn, options
from benchmarks.marks import anap, mark


class Contender(BaseContender):
    packages = ("oban", "psycopg", "uvloop")
    requirements = ("oban==0.7.0", "psycopg[binary,pool]==3.3.9", "uvloop")
    unfinished = "SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing')"

    def setup(self) -> None:
        import psycopg
        from oban.schema import install_sql

        with psycopg.connect(dsn(), autocommit=True) as connection:
            connection.execute(install_sql())

    def _tasks(self) -> dict[str, Any]:
        from oban import job

        @job(queue="default")
        def noop(number: int) -> None:
            mark(number)

        @job(queue="default")
        async def nap(number: int) -> None:
            await anap(number)

        return {"noop": noop, "nap": nap}

    def connect(self) -> None:
        import oban
        import uvloop

        self.tasks = self._tasks()
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self.pool = self._run(oban.Oban.create_pool(dsn()))
        self.oban = oban.Oban(pool=self.pool)

    def close(self) -> None:
        self._run(self.pool.close())

    def _run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(what)

    def enqueue(self, number: int, kind: str = "noop") -> None:
        self._run(self.oban.enqueue(self.tasks[kind].new(number)))

    def enqueue_many(self, numbers: Sequence[int], kind: str = "noop") -> None:
        for batch in batches(numbers):
            self._run(self.oban.enqueue_many([self.tasks[kind].new(number) for number in batch]))

    def prefill(self, future: int, finished: int, priority: int) -> None:
        import psycopg

        worker = self._tasks()["noop"].new(0).worker
        with psycopg.connect(dsn(), autocommit=True) as connection:
            connection.execute(
                "INSERT INTO oban_jobs (state, worker, args, scheduled_at)"
                " SELECT 'scheduled', %s, jsonb_build_object('number', n),"
                " timezone('UTC', now()) + interval '1 day' + n * interval '1 s' FROM generate_series(1, %s) AS n",
                (worker, future),
            )
            connection.execute(
                "INSERT INTO oban_jobs (state, worker, args, attempt, attempted_at, completed_at)"
                " SELECT 'completed', %s, jsonb_build_object('number', n), 1, timezone('UTC', now()), timezone('UTC', now())"
                " FROM generate_series(1, %s) AS n",
                (worker, finished),
            )

    def work(self) -> None:
        import oban
        import uvloop

        async def main() -> None:
            self._tasks()
            rescue = options().get("rescue")
            more = {"lifeline": {"interval": 5.0, "rescue_after": float(rescue)}} if rescue else {}
            pool = await oban.Oban.create_pool(dsn())
            async with oban.Oban(pool=pool, queues={"default": options().get("limit", 8)}, **more):
                await asyncio.Event().wait()

        uvloop.run(main())
