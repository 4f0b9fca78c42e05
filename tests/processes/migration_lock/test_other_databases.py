"""P15: a second alias that is no PostgreSQL gets this app's tables, by every migration, without PostgreSQL's own parts."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_reliable_jobs import migrations
from tests.support.migrate.mariadb import MariaDB, missing
from tests.support.migrate.runs import Migrators

NOWHERE = "postgresql://postgres@/gone?host=/nowhere"
TABLES = {
    "job",
    "jobattempt",
    "jobcheckpoint",
    "worker",
    "queuestate",
    "cronschedule",
    "cronrun",
    "fence",
    "guardclaim",
}


def names_of_migrations() -> list[str]:
    return sorted(path.stem for path in Path(migrations.__path__[0]).glob("[0-9]*.py"))


def ran(migrators: Migrators, *arguments: str) -> None:
    run = migrators.start(*arguments, "--database", "local")
    assert run.wait() == 0, migrators.report()


def test_every_migration_runs_on_sqlite_and_back(tmp_path: Path) -> None:
    path = tmp_path / "local.sqlite3"
    migrators = Migrators(NOWHERE, tmp_path / "runs", LOCAL_FILE=str(path), LOCAL_ALL="1", DEPOT_SECONDS="0")

    def column(query: str) -> list[str]:
        connection = sqlite3.connect(path)
        try:
            return [row[0] for row in connection.execute(query)]
        finally:
            connection.close()

    def tables() -> set[str]:
        found = column("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'django_reliable_jobs%'")
        return {name.removeprefix("django_reliable_jobs_") for name in found}

    ran(migrators)
    assert column("SELECT name FROM django_migrations WHERE app = 'django_reliable_jobs' ORDER BY name") == (
        names_of_migrations()
    )
    assert tables() >= TABLES
    dump = migrators.start("django_reliable_jobs", "--database", "local", command="dumpdata")
    assert (dump.wait(), dump.out.strip()) == (0, "[]"), migrators.report()
    ran(migrators, "django_reliable_jobs", "zero")
    assert not tables()
    migrators.close()


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    with MariaDB() as made:
        yield made


@pytest.mark.skipif(bool(missing()), reason=missing() or "MariaDB is there")
def test_every_migration_runs_on_mariadb_and_back(server: MariaDB, tmp_path: Path) -> None:
    name = f"tables_{uuid.uuid4().hex[:12]}"
    server.rows(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    migrators = Migrators(
        NOWHERE, tmp_path / "runs", LOCAL_MARIADB=f"{server.socket}:{name}", LOCAL_ALL="1", DEPOT_SECONDS="0"
    )

    def tables() -> set[str]:
        rows = server.rows(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{name}'")
        ours = [str(row[0]) for row in rows if str(row[0]).startswith("django_reliable_jobs_")]
        return {table.removeprefix("django_reliable_jobs_") for table in ours}

    ran(migrators)
    rows = server.rows(f"SELECT name FROM {name}.django_migrations WHERE app = 'django_reliable_jobs' ORDER BY name")
    assert [row[0] for row in rows] == names_of_migrations()
    assert tables() >= TABLES
    ran(migrators, "django_reliable_jobs", "zero")
    assert not tables()
    migrators.close()
