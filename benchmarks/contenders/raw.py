"""No queue but the loop that one would write by hand: what psycopg and PostgreSQL allow on this machine.

It has no retries, no leases, no tokens and no recovery, and polls every 5 ms when there is nothing to do. Options:
`threads`, each with a connection; `batch`, how many jobs one statement claims and one statement completes (1: each job by
itself).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence

from benchmarks.contenders.base import BaseContender, dsn, options
from benchmarks.marks import mark

TABLE = """
    CREATE TABLE job (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        task text NOT NULL,
        args jsonb NOT NULL,
        status text NOT NULL DEFAULT 'queued',
        priority int NOT NULL DEFAULT 0,
        attempts int NOT NULL DEFAULT 0,
        run_at timestamptz NOT NULL DEFAULT now(),
        created_at timestamptz NOT NULL DEFAULT now(),
        started_at timestamptz,
        finished_at timestamptz);
    CREATE INDEX job_queued ON job (priority DESC, run_at, id) WHERE status = 'queued';
    CREATE INDEX job_running ON job (id) WHERE status = 'running'"""
CLAIM = """
    UPDATE job SET status = 'running', attempts = attempts + 1, started_at = now()
     WHERE id = ANY (ARRAY(
        SELECT id FROM job WHERE status = 'queued' AND run_at <= now()
         ORDER BY priority DESC, run_at, id LIMIT {} FOR UPDATE SKIP LOCKED))
 RETURNING id, args"""
COMPLETE = "UPDATE job SET status = 'done', finished_at = now() WHERE id = ANY (%s)"
INSERT = "INSERT INTO job (task, args) VALUES (%s, %s)"


class Contender(BaseContender):
    packages = ("psycopg",)
    unfinished = "SELECT count(*) FROM job WHERE status = 'running' OR status = 'queued' AND run_at <= now()"

    def setup(self) -> None:
        self.connect()
        self.connection.execute(TABLE)

    def connect(self) -> None:
        import psycopg

        self.connection = psycopg.connect(dsn(), autocommit=True)

    def close(self) -> None:
        self.connection.close()

    def enqueue(self, number: int, kind: str = "noop") -> None:
        self.connection.execute(INSERT, (kind, json.dumps([number])))

    def enqueue_many(self, numbers: Sequence[int], kind: str = "noop") -> None:
        with self.connection.cursor().copy("COPY job (task, args) FROM STDIN") as copy:
            for number in numbers:
                copy.write_row((kind, json.dumps([number])))

    def prefill(self, future: int, finished: int, priority: int) -> None:
        self.connect()
        self.connection.execute(
            "INSERT INTO job (task, args, priority, run_at)"
            " SELECT 'noop', jsonb_build_array(n), %s, now() + interval '1 day' + n * interval '1 second'"
            " FROM generate_series(1, %s) AS n",
            (priority, future),
        )
        self.connection.execute(
            "INSERT INTO job (task, args, status, attempts, started_at, finished_at)"
            " SELECT 'noop', jsonb_build_array(n), 'done', 1, now(), now() FROM generate_series(1, %s) AS n",
            (finished,),
        )

    def work(self) -> None:
        threads = [threading.Thread(target=self._loop) for _ in range(options()["threads"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _loop(self) -> None:
        import psycopg

        claim = CLAIM.format(options()["batch"])
        with psycopg.connect(dsn(), autocommit=True, prepare_threshold=0) as connection:
            while True:
                rows = connection.execute(claim).fetchall()
                for _, args in rows:
                    mark(args[0])
                if rows:
                    connection.execute(COMPLETE, ([row[0] for row in rows],))
                else:
                    time.sleep(0.005)
