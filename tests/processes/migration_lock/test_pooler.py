"""`migrate` where the application's connections go through PgBouncer in transaction mode."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import psycopg
import pytest

from testproject.pgbouncer import PgBouncer
from testproject.postgres import EmbeddedPostgres
from tests.support.migrate.runs import MIGRATIONS, Look, Migrators, wait_until

MakeMigrators = Callable[..., Migrators]
POOLER = '{"MIGRATE": {"POOLER": true}}'
#: `MIGRATE_ROUNDS=20` for the long run.
ROUNDS = int(os.environ.get("MIGRATE_ROUNDS", "2"))


def nothing_was_migrated(look: Look) -> bool:
    return look.rows("SELECT FROM pg_class WHERE relname = 'django_migrations'") == []


def test_a_pooler_is_noticed_before_a_lock_is_taken_and_refused(
    migrators: MakeMigrators, pooled_database: str, look: Look
) -> None:
    runs = migrators(pooled_database).start_many(4)
    assert [run.wait() for run in runs] == [1] * len(runs)
    for run in runs:
        assert "goes through a connection pooler" in run.err
        assert 'Set RELIABLE_JOBS["MIGRATE"]["DATABASE"]' in run.err
        assert "Traceback" not in run.err
    assert nothing_was_migrated(look)
    assert look.advisory_locks() == []


def test_what_only_reads_works_through_the_pooler(migrators: MakeMigrators, pooled_database: str) -> None:
    start = migrators(pooled_database)
    assert start.run("--check").wait() == 1
    assert start.run("--plan").wait() == 0
    status = start.run("--lock-status")
    assert (status.wait(), status.err) == (0, "")
    assert status.out.strip().endswith("is free.")
    assert start.run("--no-lock").wait() == 0
    assert start.run("--check").wait() == 0


@pytest.mark.slow
def test_with_pooler_ten_at_once_share_two_server_connections(
    migrators: MakeMigrators, pooled_database: str, look: Look
) -> None:
    runs = migrators(pooled_database, RELIABLE_JOBS_JSON=POOLER, DEPOT_SECONDS="2").start_many(10)
    assert [run.wait() for run in runs] == [0] * len(runs)
    look.assert_migrated()
    assert sum("Applying depot." in run.out for run in runs) == 1
    assert look.advisory_locks() == []


@pytest.mark.slow
def test_with_pooler_half_of_them_killed_the_others_finish(
    migrators: MakeMigrators, pooled_database: str, look: Look
) -> None:
    start = migrators(pooled_database, RELIABLE_JOBS_JSON=POOLER)
    with look.gate(3) as arrived:
        runs = start.start_many(8)
        arrived()
        found = look.holder()
        assert found is not None
        holder = next(run for run in runs if run.pid == found[0])
        killed = [holder, *[run for run in runs if run is not holder][:3]]
        for run in killed:
            run.kill()
            assert run.wait() == -signal.SIGKILL
    others = [run for run in runs if run not in killed]
    assert [run.wait() for run in others] == [0] * len(others)
    look.assert_migrated()
    assert look.advisory_locks() == []
    assert start.run("--lock-timeout", "30").wait() == 0


def test_with_pooler_no_snapshot_of_the_lock_keeps_an_index_from_being_built(
    migrators: MakeMigrators, pooled_database: str, look: Look
) -> None:
    start = migrators(pooled_database, RELIABLE_JOBS_JSON=POOLER)
    with look.old_snapshot() as arrived:
        first = start.start()
        arrived()
        second = start.start()
        assert look.rows(
            "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND backend_xmin IS NULL"
            " AND backend_xid IS NULL AND application_name ~ '^migrate-lock'"
        )
    assert [first.wait(), second.wait()] == [0, 0]
    look.assert_migrated()


def test_with_pooler_a_wait_ends_in_time_though_no_server_connection_is_free(
    migrators: MakeMigrators, pooled_database: str, look: Look
) -> None:
    start = migrators(pooled_database, RELIABLE_JOBS_JSON=POOLER)
    with look.gate(3) as arrived:
        first = start.start()
        arrived()
        second = start.run("--lock-timeout", "1")
        assert second.wait() == 75
        assert first.process.poll() is None
    assert first.wait() == 0
    look.assert_migrated()


def test_with_pooler_idle_timeouts_of_the_database_leave_the_lock_alone(
    migrators: MakeMigrators, pooled_database: str, look: Look
) -> None:
    name = look.column("SELECT current_database()")[0]
    look.connection.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '1s'")
    assert migrators(pooled_database, RELIABLE_JOBS_JSON=POOLER, DEPOT_SECONDS="3").run().wait() == 0
    look.assert_migrated()


def test_with_pooler_cut_off_from_the_lock_the_others_wait_for_the_migration(
    migrators: MakeMigrators, pooler: PgBouncer, pooled_database: str, look: Look
) -> None:
    start = migrators(pooled_database, RELIABLE_JOBS_JSON=POOLER)
    with look.gate(3) as arrived:
        holder = start.start()
        arrived()
        found = look.holder()
        assert found is not None
        look.connection.execute("SELECT pg_terminate_backend(%s)", [found[1]])
        others = start.start_many(2)
        others[0].wait_for_err("lost by host")
        assert look.migrations() == MIGRATIONS[:2]
    assert holder.wait() == 1
    assert "The connection that holds the migration lock was cut" in holder.err
    assert [run.wait() for run in others] == [0] * len(others)
    look.assert_migrated()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_with_pooler_round_after_round_half_of_them_killed_and_no_lock_stays_behind(
    migrators: MakeMigrators, pooled_database: str, look: Look
) -> None:
    """M01: ten at once in each round, five of them killed somewhere in it, its holder among them or not."""
    seed = int(os.environ.get("MIGRATE_SEED", random.randrange(10**6)))
    dice = random.Random(seed)
    start = migrators(pooled_database, RELIABLE_JOBS_JSON=POOLER, DEPOT_SECONDS="1.5")
    began = time.monotonic()
    holders = 0
    for number in range(ROUNDS):
        look.connection.execute("DROP SCHEMA public CASCADE")
        look.connection.execute("CREATE SCHEMA public")
        runs = start.start_many(10)
        wait_until(look.holder, "one of them to migrate")
        time.sleep(dice.uniform(0, 1.2))  # the moment of the kill is what the rounds differ in
        holder = look.holder()
        killed = dice.sample(runs, 5)
        holders += holder is not None and holder[0] in [run.pid for run in killed]
        for run in killed:
            run.kill()
        assert [run.wait() for run in runs if run not in killed] == [0] * 5, f"round {number}, seed {seed}"
        look.assert_migrated()
        wait_until(lambda: look.advisory_locks() == [], "no advisory lock to be left")
    print(f"{ROUNDS} rounds in {time.monotonic() - began:.0f} s, {holders} times the holder was killed; seed {seed}")


def test_with_pooler_a_failing_migration_fails_in_every_process(
    migrators: MakeMigrators, pooled_database: str, look: Look
) -> None:
    runs = migrators(pooled_database, RELIABLE_JOBS_JSON=POOLER, DEPOT_FAIL="5").start_many(5)
    assert [run.wait() for run in runs] == [1] * len(runs)
    for run in runs:
        assert f"RuntimeError: step 5 fails in process {run.pid}" in run.err
    assert look.migrations() == MIGRATIONS[:4]
    assert look.advisory_locks() == []
    assert migrators(pooled_database, RELIABLE_JOBS_JSON=POOLER).run().wait() == 0
    look.assert_migrated()


def test_with_pooler_timeouts_of_the_database_neither_end_the_wait_nor_the_lock(
    migrators: MakeMigrators, pooled_database: str, look: Look
) -> None:
    name = look.column("SELECT current_database()")[0]
    for setting in ("lock_timeout", "statement_timeout"):
        look.connection.execute(f"ALTER DATABASE {name} SET {setting} = '3s'")
    runs = migrators(pooled_database, RELIABLE_JOBS_JSON=POOLER, DEPOT_SECONDS="5", DEPOT_ROWS="200").start_many(4)
    assert [run.wait() for run in runs] == [0] * len(runs)
    look.assert_migrated()


def test_with_pooler_killed_in_the_middle_of_building_an_index(
    migrators: MakeMigrators, pooled_database: str, look: Look
) -> None:
    start = migrators(pooled_database, RELIABLE_JOBS_JSON=POOLER)
    with look.old_snapshot() as arrived:
        holder = start.start()
        arrived()
        holder.kill()
        holder.wait()
        others = start.start_many(2)
        others[0].wait_for_err("lost by host")
    assert [run.wait() for run in others] == [0] * len(others)
    look.assert_migrated()


def test_lock_and_migrations_go_by_the_direct_alias_under_the_name_of_the_migrated_one(
    migrators: MakeMigrators, pooled_database: str, database: str, look: Look
) -> None:
    runs = migrators(pooled_database, MIGRATE_DATABASE_URL=database).start_many(6)
    assert [run.wait() for run in runs] == [0] * len(runs)
    look.assert_migrated()
    assert look.rows("SELECT DISTINCT alias, direct FROM depot_event") == [("default", True)]


def test_by_the_direct_alias_a_paused_pooler_is_no_hindrance(
    migrators: MakeMigrators, pooler: PgBouncer, pooled_database: str, database: str, look: Look
) -> None:
    start = migrators(pooled_database, MIGRATE_DATABASE_URL=database)
    with psycopg.connect(pooler.url("pgbouncer"), autocommit=True) as admin:
        admin.execute("PAUSE")
        assert start.run().wait() == 0
    look.assert_migrated()


def test_a_direct_alias_to_another_database_is_refused(
    migrators: MakeMigrators, pooled_database: str, postgres: EmbeddedPostgres, look: Look
) -> None:
    run = migrators(pooled_database, MIGRATE_DATABASE_URL=postgres.url("postgres")).run()
    assert run.wait() == 1
    assert "does not lead to the same database" in run.err
    assert nothing_was_migrated(look)
    with Look(postgres.url("postgres")) as other:
        assert nothing_was_migrated(other)


def test_a_direct_alias_to_another_schema_is_refused(
    migrators: MakeMigrators, pooled_database: str, database: str, look: Look
) -> None:
    look.connection.execute("CREATE SCHEMA tenant")
    direct = f"{database}&options=-c%20search_path%3Dtenant"
    run = migrators(pooled_database, MIGRATE_DATABASE_URL=direct).run()
    assert run.wait() == 1
    assert "does not lead to the same schema" in run.err
    assert nothing_was_migrated(look)


def test_a_direct_alias_that_is_out_of_reach_is_not_replaced_by_the_pooler(
    migrators: MakeMigrators, pooled_database: str, look: Look
) -> None:
    run = migrators(pooled_database, MIGRATE_DATABASE_URL="postgresql://postgres@/gone?host=/nowhere").run()
    assert run.wait() == 1
    assert "/nowhere" in run.err
    assert nothing_was_migrated(look)
