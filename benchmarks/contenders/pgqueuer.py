"""PgQueuer over asyncpg, on uvloop as its command line runs it.

Its completions are buffered (by batch or about 0.1 s) and written together; a finished job leaves the queue's table for a
row in the log. Options go to `PgQueuer.run()`: the defaults are batches of ten and no cap on tasks at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from benchmarks.contenders.base import BaseContender, batches, dsn, options
from benchmarks.marks import anap, mark


class Contender(BaseContender):
    packages = ("pgqueuer", "asyncpg", "uvloop")
    requirements = ("pgqueuer[asyncpg]==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0")
    unfinished = "SELECT count(*) FROM pgqueuer WHERE status IN ('queued', 'picked') AND execute_after <= now()"

    def setup(self) -> None:
        self.connect()
        self._run(self.queries.install())
        self.close()

    def connect(self) -> None:
        import asyncpg
        import uvloop
        from pgqueuer.queries import Queries

        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self.connection = self._run(asyncpg.connect(dsn(), command_timeout=600))
        self.queries = Queries.from_asyncpg_connection(self.connection)

    def close(self) -> None:
        self._run(self.connection.close())

    def _run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(what)

    def enqueue(self, number: int, kind: str = "noop") -> None:
        self._run(self.queries.enqueue(kind, str(number).encode()))

    def enqueue_many(self, numbers: Sequence[int], kind: str = "noop") -> None:
        for batch in batches(numbers):
            payloads = [str(number).encode() for number in batch]
            self._run(self.queries.enqueue([kind] * len(batch), payloads, [0] * len(batch)))

    def prefill(self, future: int, finished: int, priority: int) -> None:
        self.connect()
        self._run(
            self.connection.execute(
                "INSERT INTO pgqueuer (priority, entrypoint, payload, status, execute_after)"
                " SELECT $1::int, 'noop', convert_to(n::text, 'UTF8'), 'queued', now() + interval '1 day' + n * interval '1 s'"
                " FROM generate_series(1, $2::int) AS n",
                priority,
                future,
            )
        )
        # As an installation's older rows are: counted in its statistics already.
        self._run(
            self.connection.execute(
                "INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint, aggregated)"
                " SELECT 10000000 + n, 'successful', 0, 'noop', true FROM generate_series(1, $1::int) AS n",
                finished,
            )
        )

    def work(self) -> None:
        import asyncpg
        import uvloop
        from pgqueuer import PgQueuer

        async def main() -> None:
            queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(dsn()))

            @queue.entrypoint("noop")
            async def noop(job: Any) -> None:
                mark(int(job.payload))

            @queue.entrypoint("nap")
            async def nap(job: Any) -> None:
                await anap(int(job.payload))

            await queue.run(**options())

        uvloop.run(main())
