"""The server that the runs use, its databases, and what it says of itself."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg.sql import SQL, Identifier

from benchmarks import machine
from testproject.postgres import EmbeddedPostgres

#: Everything else is PostgreSQL's default; so fsync, synchronous_commit and full_page_writes are on.
SETTINGS = {"max_connections": 200, "shared_buffers": "512MB"}
SHOWN = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "wal_sync_method")


@dataclass(frozen=True)
class Counters:
    """Since the server's start: commits and rollbacks of one database, bytes of WAL of all."""

    commits: int
    wal: int


class Server:
    """Started and stopped by `with`."""

    def __init__(self) -> None:
        self._postgres = EmbeddedPostgres(settings=SETTINGS)
        self.templates: set[str] = set()
        self.serial = itertools.count(1)

    def __enter__(self) -> Self:
        self._postgres.start()
        self.pid = int((self._postgres.home / "data" / "postmaster.pid").read_text().split()[0])
        with self.connect() as connection:
            self.settings = {name: connection.execute(f"SHOW {name}").fetchone()[0] for name in SHOWN}  # type: ignore[index]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._postgres.stop()

    def connect(self, database: str = "postgres", *, autocommit: bool = True) -> psycopg.Connection:
        return psycopg.connect(self._postgres.url(database), autocommit=autocommit)

    def address(self, database: str) -> dict[str, Any]:
        """For the child processes; see `contenders.base`."""
        socket = self._postgres
        return {"host": str(socket.socket_dir), "port": socket.port, "user": "postgres", "dbname": database}

    def create(self, database: str, template: str = "template0") -> None:
        self._on(SQL("CREATE DATABASE {} TEMPLATE {}").format(Identifier(database), Identifier(template)))

    def drop(self, database: str) -> None:
        self._on(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(database)))

    def log_statements(self, database: str, on: bool) -> None:
        """Of sessions that begin from now on."""
        what = SQL("'all'" if on else "'none'")
        self._on(SQL("ALTER DATABASE {} SET log_statement = {}").format(Identifier(database), what))

    def statements_logged(self) -> int:
        log = self._postgres.log.read_text(errors="replace")
        return log.count("LOG:  statement: ") + log.count("LOG:  execute ")

    def cpu(self) -> float:
        return machine.cpu([self.pid])

    def fine_cpu(self) -> float:
        return machine.fine_cpu([self.pid])

    def counters(self, database: str) -> Counters:
        """Exact only while nobody else is connected to the database: a session hands its counts in with a delay."""
        with self.connect() as connection:
            connection.execute("SELECT pg_stat_clear_snapshot()")
            row = connection.execute(
                "SELECT xact_commit + xact_rollback, pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
                "  FROM pg_stat_database WHERE datname = %s",
                (database,),
            ).fetchone()
        assert row is not None
        return Counters(int(row[0]), int(row[1]))

    def wait_until_left(self, database: str, timeout: float = 20.0) -> None:
        """Until the last session of this database has ended."""
        give_up = time.monotonic() + timeout
        with self.connect() as connection:
            while time.monotonic() < give_up:
                row = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'",
                    (database,),
                ).fetchone()
                if row == (0,):
                    return
                time.sleep(0.01)

    def _on(self, statement: Any) -> None:
        """Outside of all databases of the runs. A template is in use for a moment after its last session."""
        with self.connect() as connection:
            for tries_left in reversed(range(100)):
                try:
                    connection.execute(statement)
                    return
                except psycopg.errors.ObjectInUse:
                    if not tries_left:
                        raise
                    time.sleep(0.1)
