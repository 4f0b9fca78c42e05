"""MariaDB: the lock is GET_LOCK's, on a connection of its own."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.migrate.mariadb import MariaDB, missing
from tests.support.migrate.runs import EVENTS, MIGRATIONS, Migrators, wait_until

NOWHERE = "postgresql://postgres@/gone?host=/nowhere"

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "MariaDB is there")


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    with MariaDB() as made:
        yield made


@pytest.fixture
def name(server: MariaDB) -> Iterator[str]:
    """An empty database."""
    made = f"migrate_{uuid.uuid4().hex[:12]}"
    server.rows(f"CREATE DATABASE {made}")
    yield made
    server.rows(f"DROP DATABASE {made}")


@pytest.fixture
def make(server: MariaDB, tmp_path: Path) -> Iterator[Callable[[str], Migrators]]:
    made: list[Migrators] = []

    def start(name: str) -> Migrators:
        made.append(
            Migrators(NOWHERE, tmp_path / str(len(made)), LOCAL_MARIADB=f"{server.socket}:{name}", DEPOT_SECONDS="0")
        )
        return made[-1]

    yield start
    for migrators in made:
        print(migrators.report())
        migrators.close()


@pytest.fixture
def migrators(make: Callable[[str], Migrators], name: str) -> Migrators:
    return make(name)


def assert_migrated(server: MariaDB, name: str) -> None:
    rows = server.rows(f"SELECT name FROM {name}.django_migrations WHERE app = 'depot' ORDER BY id")
    assert [row[0] for row in rows] == MIGRATIONS
    assert [row[0] for row in server.rows(f"SELECT what FROM {name}.depot_event ORDER BY id")] == EVENTS


def test_several_at_once_and_one_applies(migrators: Migrators, server: MariaDB, name: str) -> None:
    runs = [migrators.start("--database", "local", DEPOT_SECONDS="1") for _ in range(5)]
    assert [run.wait() for run in runs] == [0] * 5
    assert_migrated(server, name)
    assert sum("Applying" in run.out for run in runs) == 1


def test_a_killed_holder_leaves_no_lock_and_a_waiter_names_it(migrators: Migrators, server: MariaDB, name: str) -> None:
    first = migrators.start("--database", "local", DEPOT_SECONDS="600")
    wait_until(lambda: "0003" in first.out, "the slow migration")
    second = migrators.start("--database", "local")
    second.wait_for_err("held by session ")
    status = migrators.run("--database", "local", "--lock-status").out
    assert "The migration lock of database " in status
    assert "is held by session " in status
    assert migrators.run("--database", "local", "--lock-timeout", "0.2").wait() == 75
    first.kill()
    assert first.wait() == -signal.SIGKILL
    assert second.wait() == 0
    assert_migrated(server, name)
    assert migrators.run("--database", "local", "--lock-status").out.endswith(" is free.\n")


def test_a_lock_whose_session_is_killed_ends_the_run_with_an_error(
    migrators: Migrators, server: MariaDB, name: str
) -> None:
    run = migrators.start("--database", "local", DEPOT_SECONDS="8")
    wait_until(lambda: "0003" in run.out, "the slow migration")
    status = migrators.run("--database", "local", "--lock-status").out
    server.rows(f"KILL {int(status.split('held by session ')[1].split()[0])}")
    assert run.wait() == 1
    assert "The connection that holds the migration lock was cut" in run.err
    assert "depot.0003_weigh... OK" in run.out
    assert "depot.0004_index" not in run.out
    assert migrators.run("--database", "local").wait() == 0
    assert_migrated(server, name)


def test_a_short_wait_timeout_of_the_server_does_not_end_the_lock(
    migrators: Migrators, server: MariaDB, name: str
) -> None:
    server.rows("SET GLOBAL wait_timeout = 1")
    try:
        runs = [migrators.start("--database", "local", DEPOT_SECONDS="3") for _ in range(2)]
        assert [run.wait() for run in runs] == [0, 0]
    finally:
        server.rows("SET GLOBAL wait_timeout = 28800")
    assert_migrated(server, name)
    assert sum("Applying" in run.out for run in runs) == 1


def test_two_databases_do_not_wait_for_each_other(
    make: Callable[[str], Migrators], migrators: Migrators, server: MariaDB
) -> None:
    first = migrators.start("--database", "local", DEPOT_SECONDS="600")
    wait_until(lambda: "0003" in first.out, "the slow migration")
    other = f"migrate_{uuid.uuid4().hex[:12]}"
    server.rows(f"CREATE DATABASE {other}")
    try:
        assert make(other).run("--database", "local", "--lock-timeout", "5").wait() == 0
        assert first.process.poll() is None
        assert_migrated(server, other)
    finally:
        first.kill()
        first.wait()
        server.rows(f"DROP DATABASE {other}")
