from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from testproject.pgbouncer import PgBouncer
from testproject.postgres import EmbeddedPostgres
from tests.support.migrate.runs import Look, Migrators


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The URL of an empty database."""
    name = f"migrate_{uuid.uuid4().hex[:12]}"
    yield postgres.create_database(name)
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def look(database: str) -> Iterator[Look]:
    with Look(database) as made:
        yield made


@pytest.fixture
def migrators(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Migrators]]:
    """Makes what starts processes, on the empty database or on another URL. Their output is shown after a failure."""
    made: list[Migrators] = []

    def make(url: str = database, **env: str) -> Migrators:
        made.append(Migrators(url, tmp_path / str(len(made)), **env))
        return made[-1]

    yield make
    for migrators in made:
        print(migrators.report())
        migrators.close()


@pytest.fixture
def pooler(postgres: EmbeddedPostgres) -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode with two server connections for each database."""
    with PgBouncer(postgres, pool_size=2) as made:
        yield made


@pytest.fixture
def pooled_database(database: str, pooler: PgBouncer) -> str:
    """The URL of the empty database through the pooler."""
    return pooler.url(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
