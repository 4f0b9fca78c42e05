"""Every replica runs `migrate` at the same time."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from testproject.postgres import EmbeddedPostgres, database_url
from tests.support.migrate.runs import MIGRATIONS, Look, Migrators

MakeMigrators = Callable[..., Migrators]


@pytest.mark.slow
def test_twenty_at_once_on_an_empty_database_and_one_applies(migrators: MakeMigrators, look: Look) -> None:
    runs = migrators(DEPOT_SECONDS="3", DEPOT_ROWS="20000").start_many(20)
    assert [run.wait() for run in runs] == [0] * len(runs)
    look.assert_migrated()
    assert sum("Applying depot." in run.out for run in runs) == 1
    assert look.advisory_locks() == []


def test_a_half_migrated_database_is_finished_by_one(migrators: MakeMigrators, look: Look) -> None:
    start = migrators()
    assert start.run("depot", "0003").wait() == 0
    runs = start.start_many(5)
    assert [run.wait() for run in runs] == [0] * len(runs)
    look.assert_migrated()


def test_a_guard_in_an_app_s_ready_does_not_keep_the_tables_from_being_made(
    migrators: MakeMigrators, look: Look
) -> None:
    """N12: it runs in `migrate` too, before there is a table; it is closed, and says so."""
    runs = migrators(DEPOT_GUARD="1").start_many(2)
    assert [run.wait() for run in runs] == [0] * len(runs), runs[0].err
    look.assert_migrated()
    assert "0003_guards" in runs[0].err


def test_who_waits_says_on_stderr_for_whom_and_leaves_stdout_as_django_writes_it(
    migrators: MakeMigrators, look: Look
) -> None:
    start = migrators()
    with look.gate(3) as arrived:
        first = start.start()
        arrived()
        second = start.start()
        third = start.start("--verbosity", "0")
        second.wait_for_err(f"pid {first.pid}, for ")
    assert [run.wait() for run in (first, second, third)] == [0] * 3
    assert second.err.splitlines()[0].startswith("Waiting for the migration lock, held by host ")
    assert second.err.splitlines()[-1].startswith("Got the migration lock after ")
    assert second.out.splitlines() == [
        "Operations to perform:",
        "  Apply all migrations: auth, contenttypes, depot, django_reliable_jobs",
        "Running migrations:",
        "  No migrations to apply.",
    ]
    assert (first.err, third.err, third.out) == ("", "", "")


def test_a_failing_migration_fails_in_every_process_and_nothing_after_it_is_applied(
    migrators: MakeMigrators, look: Look
) -> None:
    runs = migrators(DEPOT_FAIL="5").start_many(6)
    assert [run.wait() for run in runs] == [1] * len(runs)
    for run in runs:
        assert f"RuntimeError: step 5 fails in process {run.pid}" in run.err
    assert look.migrations() == MIGRATIONS[:4]
    assert look.doubled() == []
    assert look.advisory_locks() == []
    assert migrators().run().wait() == 0  # the next release repairs it
    look.assert_migrated()


def test_timeouts_of_the_role_neither_end_the_wait_nor_the_lock(
    migrators: MakeMigrators, look: Look, postgres: EmbeddedPostgres, database: str
) -> None:
    role = str(look.column("SELECT 'hasty_' || substr(current_database(), 9)")[0])
    look.connection.execute(f"CREATE ROLE {role} LOGIN")
    look.connection.execute(f"ALTER SCHEMA public OWNER TO {role}")
    for setting in (
        "lock_timeout", "statement_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"
    ):  # fmt: skip
        look.connection.execute(f"ALTER ROLE {role} SET {setting} = '3s'")
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    url = database_url(str(name), host=str(postgres.socket_dir), port=postgres.port, user=role)
    try:
        runs = migrators(url, DEPOT_SECONDS="5", DEPOT_ROWS="200").start_many(6)
        assert [run.wait() for run in runs] == [0] * len(runs)
        look.assert_migrated()
    finally:
        look.connection.execute(f"DROP OWNED BY {role} CASCADE")
        look.connection.execute(f"DROP ROLE {role}")


def test_a_migration_that_a_timeout_of_the_role_ends_says_which(migrators: MakeMigrators, look: Look) -> None:
    name = look.column("SELECT current_database()")[0]
    look.connection.execute(f"ALTER DATABASE {name} SET lock_timeout = '300ms'")
    start = migrators()
    assert start.run("depot", "0003").wait() == 0
    with psycopg.connect(look.url) as other:
        other.execute("LOCK TABLE depot_crate IN ACCESS EXCLUSIVE MODE")
        run = start.run()
    assert run.wait() == 1
    assert "lock timeout" in run.err
    assert "lock_timeout is 300ms on this connection" in run.err
    look.connection.execute(f"ALTER DATABASE {name} RESET lock_timeout")
    assert start.run().wait() == 0
    look.assert_migrated()


def test_two_schemas_of_one_database_do_not_wait_for_each_other(migrators: MakeMigrators, look: Look) -> None:
    look.connection.execute("CREATE SCHEMA tenant")
    with look.gate(3) as arrived:
        first = migrators().start()
        arrived()
        other = migrators(f"{look.url}&options=-c%20search_path%3Dtenant").run("contenttypes", "--lock-timeout", "5")
        assert other.wait() == 0
        assert first.process.poll() is None
    assert first.wait() == 0


def test_a_key_of_ones_own_keeps_two_schemas_apart(migrators: MakeMigrators, look: Look) -> None:
    look.connection.execute("CREATE SCHEMA tenant")
    key = {"RELIABLE_JOBS_JSON": '{"MIGRATE": {"KEY": 42}}'}
    with look.gate(3) as arrived:
        first = migrators(**key).start()
        arrived()
        url = f"{look.url}&options=-c%20search_path%3Dtenant"
        assert migrators(url, **key).run("--lock-timeout", "0.5").wait() == 75
    assert first.wait() == 0
