"""Processes that run `migrate`, and what is to be seen of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psycopg

from testproject.postgres import PROJECT_ROOT
from tests.support.migrate.depot.steps import GATES

#: Seconds. Twenty processes on a busy machine take their time.
PATIENCE = 120.0
MIGRATIONS = ["0001_initial", "0002_fill", "0003_weigh", "0004_index", "0005_fifth", "0006_last"]
EVENTS = ["step 2", "step 3", "step 5", "step 6"]
SETTINGS = "tests.support.migrate.settings"


class Run:
    """One process. Its output goes to files, so that it never waits for a reader."""

    def __init__(self, env: Mapping[str, str], arguments: tuple[str, ...], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "django", *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                cwd=PROJECT_ROOT, env=dict(env),
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def wait_for_err(self, text: str) -> None:
        wait_until(lambda: text in self.err, f"{text!r} in what {self.pid} says")

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)


class Migrators:
    """Starts processes on one database; `env` goes on top of the tests' own environment."""

    def __init__(self, url: str, folder: Path, **env: str) -> None:
        self.url = url
        self.folder = folder
        self.runs: list[Run] = []
        self.env = {
            **os.environ, "DATABASE_URL": url, "PYTHONPATH": str(PROJECT_ROOT), "DJANGO_SETTINGS_MODULE": SETTINGS,
        } | env  # fmt: skip

    def start(self, *arguments: str, command: str = "migrate", **env: str) -> Run:
        run = Run(self.env | env, (command, *arguments), self.folder / str(len(self.runs)))
        self.runs.append(run)
        return run

    def start_many(self, count: int, *arguments: str, **env: str) -> list[Run]:
        """`count`, or as many as MIGRATE_PROCESSES says."""
        count = int(os.environ.get("MIGRATE_PROCESSES", count))
        return [self.start(*arguments, **env) for _ in range(count)]

    def run(self, *arguments: str, command: str = "migrate", **env: str) -> Run:
        """Start one and wait for its end."""
        run = self.start(*arguments, command=command, **env)
        run.wait()
        return run

    def close(self) -> None:
        for run in self.runs:
            if run.process.poll() is None:
                run.kill(signal.SIGCONT)
                run.kill()
            run.process.wait()

    def report(self) -> str:
        return "\n".join(
            f"--- {n}, pid {run.pid}: {run.process.poll()}\n{run.out}\n{run.err}" for n, run in enumerate(self.runs)
        )


class Look:
    """Looks at a database from outside, on a connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True, application_name="the test")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def rows(self, query: str, *params: object) -> list[tuple[object, ...]]:
        return self.connection.execute(query, params or None).fetchall()

    def column(self, query: str, *params: object) -> list[object]:
        return [row[0] for row in self.rows(query, *params)]

    def migrations(self) -> list[object]:
        return self.column("SELECT name FROM django_migrations WHERE app = 'depot' ORDER BY id")

    def events(self) -> list[object]:
        return self.column("SELECT what FROM depot_event ORDER BY id")

    def doubled(self) -> list[object]:
        """What is there twice and should be there once."""
        return [
            *self.column("SELECT app || name FROM django_migrations GROUP BY app, name HAVING count(*) > 1"),
            *self.column("SELECT model FROM django_content_type GROUP BY app_label, model HAVING count(*) > 1"),
            *self.column("SELECT codename FROM auth_permission GROUP BY content_type_id, codename HAVING count(*) > 1"),
        ]

    def invalid_indexes(self) -> list[object]:
        return self.column("SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid")

    def advisory_locks(self) -> list[tuple[object, ...]]:
        return self.rows(
            "SELECT l.pid, application_name FROM pg_locks l JOIN pg_stat_activity USING (pid)"
            " WHERE locktype = 'advisory' AND l.database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        )

    def assert_migrated(self) -> None:
        assert self.migrations() == MIGRATIONS
        assert self.events() == EVENTS
        assert self.doubled() == []
        assert self.invalid_indexes() == []
        assert self.rows("SELECT FROM pg_class WHERE relname = 'depot_crate_weight'")

    def holder(self) -> tuple[int, int] | None:
        """The pids of the process that holds the lock and of its lock's session on the server."""
        found = self.rows(
            "SELECT application_name, pid FROM pg_stat_activity"
            " WHERE application_name ~ '^migrate-lock' AND datname = current_database()"
        )
        return (int(str(found[0][0]).split()[2]), int(str(found[0][1]))) if found else None

    @contextmanager
    def gate(self, number: int) -> Iterator[Callable[[], None]]:
        """Keep a migration waiting in its middle. The block gets a function that waits until one has come there."""
        with psycopg.connect(self.url, autocommit=True, application_name="the gate") as guard:
            guard.execute("SELECT pg_advisory_lock(%s)", [GATES + number])

            def arrived() -> None:
                query = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = %s"
                wait_until(lambda: bool(self.rows(query, GATES + number)), f"a migration to come to gate {number}")

            yield arrived

    @contextmanager
    def old_snapshot(self) -> Iterator[Callable[[], None]]:
        """Keep CREATE INDEX CONCURRENTLY waiting in its middle, with the index there and invalid. The block gets a
        function that waits until it has come there."""
        with psycopg.connect(self.url, application_name="the snapshot") as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT 1")

            def arrived() -> None:
                wait_until(
                    lambda: self.invalid_indexes() == ["depot_crate_weight"] and bool(self.waiting_for_snapshots()),
                    "the building of the index to wait",
                )

            yield arrived
            reader.rollback()

    def waiting_for_snapshots(self) -> list[object]:
        return self.column("SELECT pid FROM pg_locks WHERE locktype = 'virtualxid' AND NOT granted")


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.05)
