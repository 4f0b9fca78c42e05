"""SQLite: an exclusive lock file beside the database."""

from __future__ import annotations

import fcntl
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from django_reliable_jobs.migration_lock.databases.sqlite import SQLiteLock, path_of
from tests.support.migrate.runs import EVENTS, MIGRATIONS, Migrators, wait_until

NOWHERE = "postgresql://postgres@/gone?host=/nowhere"
MakeMigrators = Callable[..., Migrators]


@pytest.fixture
def migrators(tmp_path: Path) -> Migrators:
    """On SQLite alone: nothing here needs a server."""
    return Migrators(NOWHERE, tmp_path / "runs", LOCAL_FILE=str(tmp_path / "local.sqlite3"))


def column(path: Path, query: str) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return [row[0] for row in connection.execute(query)]
    finally:
        connection.close()


def assert_migrated(path: Path) -> None:
    assert column(path, "SELECT name FROM django_migrations WHERE app = 'depot' ORDER BY id") == MIGRATIONS
    assert column(path, "SELECT what FROM depot_event ORDER BY id") == EVENTS


def test_several_at_once_and_one_applies(migrators: Migrators, tmp_path: Path) -> None:
    runs = [migrators.start("--database", "local", DEPOT_SECONDS="1") for _ in range(5)]
    assert [run.wait() for run in runs] == [0] * 5, migrators.report()
    assert_migrated(tmp_path / "local.sqlite3")
    assert sum("Applying" in run.out for run in runs) == 1


def test_a_killed_holder_leaves_no_lock_and_a_waiter_names_it(migrators: Migrators, tmp_path: Path) -> None:
    database = tmp_path / "local.sqlite3"
    first = migrators.start("--database", "local", DEPOT_SECONDS="600")
    lock = database.with_name("local.sqlite3.migrate-lock")
    wait_until(lambda: "0003" in first.out, "the slow migration")
    second = migrators.start("--database", "local", DEPOT_SECONDS="0")
    second.wait_for_err(f"pid {first.pid}, for ")
    assert migrators.run("--database", "local", "--lock-timeout", "0.2").wait() == 75
    first.kill()
    assert first.wait() == -signal.SIGKILL
    assert second.wait() == 0, migrators.report()
    assert_migrated(database)
    status = migrators.run("--database", "local", "--lock-status")
    assert status.out == f"The migration lock {lock} is free.\n"


def test_a_lock_file_that_somebody_removes_is_a_lost_lock(tmp_path: Path) -> None:
    lock = SQLiteLock(tmp_path / "x.sqlite3")
    lock.open(1)
    assert lock.try_acquire(1)
    lock.check(1)
    (tmp_path / "x.sqlite3.migrate-lock").unlink()
    with pytest.raises(Exception, match="was removed"):
        lock.check(1)
    lock.close()


def test_the_lock_file_stays_and_is_free_after_the_release(tmp_path: Path) -> None:
    lock = SQLiteLock(str(tmp_path / "x.sqlite3"))
    lock.open(1)
    assert lock.try_acquire(1)
    assert lock.release()
    lock.close()
    with (tmp_path / "x.sqlite3.migrate-lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert file.read() == ""


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (":memory:", None),
        ("", None),
        ("file:memorydb_default?mode=memory&cache=shared", None),
        ("/srv/data.sqlite3", Path("/srv/data.sqlite3")),
        ("file:/srv/the%20data?mode=rwc", Path("/srv/the data")),
        (Path("/srv/data"), Path("/srv/data")),
    ],
)
def test_the_file_of_a_database(name: str | Path, path: Path | None) -> None:
    assert path_of(name) == path
