"""The process that holds the migration lock is killed, stopped, or cut off from its lock."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from testproject.postgres import EmbeddedPostgres
from tests.support.migrate.depot.steps import FIRST, LAST
from tests.support.migrate.runs import MIGRATIONS, Look, Migrators, Run, wait_until

MakeMigrators = Callable[..., Migrators]


def holder_among(runs: list[Run], look: Look) -> tuple[Run, int]:
    """The run that holds the lock, and its lock's session."""
    found = look.holder()
    assert found is not None
    return next(run for run in runs if run.pid == found[0]), found[1]


@pytest.mark.slow
def test_killed_in_the_middle_of_building_an_index_the_next_one_builds_it(migrators: MakeMigrators, look: Look) -> None:
    with look.old_snapshot() as arrived:
        runs = migrators().start_many(8)
        arrived()
        holder, _ = holder_among(runs, look)
        (orphan,) = look.waiting_for_snapshots()
        holder.kill()
        # The server ends the statement of the dead process by itself, and only then the next run goes on.
        wait_until(lambda: not look.rows("SELECT FROM pg_stat_activity WHERE pid = %s", orphan), "the orphan's end")
    assert holder.wait() == -signal.SIGKILL
    others = [run for run in runs if run is not holder]
    assert [run.wait() for run in others] == [0] * len(others)
    look.assert_migrated()
    assert sum("Removed public.depot_crate_weight" in run.err for run in others) == 1
    assert look.advisory_locks() == []


def test_a_run_alone_that_was_killed_leaves_an_index_that_the_next_run_replaces(
    migrators: MakeMigrators, look: Look
) -> None:
    start = migrators()
    with look.old_snapshot() as arrived:
        killed = start.start()
        arrived()
        killed.kill()
        killed.wait()
        wait_until(lambda: not look.waiting_for_snapshots(), "the server to end the statement")
    assert look.invalid_indexes() == ["depot_crate_weight"]
    assert start.run("--lock-timeout", "30").wait() == 0
    look.assert_migrated()


def test_cut_off_from_its_lock_it_finishes_its_migration_and_no_other_starts_before(
    migrators: MakeMigrators, look: Look
) -> None:
    with look.gate(3) as arrived:
        runs = migrators().start_many(6)
        arrived()
        holder, session = holder_among(runs, look)
        look.connection.execute("SELECT pg_terminate_backend(%s)", [session])
        others = [run for run in runs if run is not holder]
        wait_until(lambda: any("lost by host" in run.err for run in others), "somebody to see that the lock is lost")
        assert look.migrations() == MIGRATIONS[:2]
    assert holder.wait() == 1
    assert "The connection that holds the migration lock was cut" in holder.err
    assert "depot.0003_weigh... OK" in holder.out
    assert "depot.0004_index" not in holder.out
    assert [run.wait() for run in others] == [0] * len(others)
    look.assert_migrated()


def test_cut_off_in_the_last_migration_the_exit_status_says_so(migrators: MakeMigrators, look: Look) -> None:
    start = migrators()
    with look.gate(6) as arrived:
        run = start.start("depot")
        arrived()
        _, session = holder_among([run], look)
        look.connection.execute("SELECT pg_terminate_backend(%s)", [session])
    assert run.wait() == 1
    assert "Run migrate again" in run.err
    assert look.migrations() == MIGRATIONS
    assert start.run().wait() == 0
    look.assert_migrated()


def test_cut_off_while_building_an_index_the_others_wait_for_the_index(migrators: MakeMigrators, look: Look) -> None:
    with look.old_snapshot() as arrived:
        runs = migrators().start_many(4)
        arrived()
        holder, session = holder_among(runs, look)
        look.connection.execute("SELECT pg_terminate_backend(%s)", [session])
        others = [run for run in runs if run is not holder]
        wait_until(lambda: any("lost by host" in run.err for run in others), "somebody to see that the lock is lost")
    assert holder.wait() == 1
    assert [run.wait() for run in others] == [0] * len(others)
    look.assert_migrated()


@pytest.mark.parametrize(("how", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])
@pytest.mark.parametrize("where", [FIRST, 3, LAST], ids=["lock taken", "mid-migration", "before release"])
def test_a_holder_that_is_ended_anywhere_leaves_the_lock_to_the_next_one(
    migrators: MakeMigrators, look: Look, where: int, how: signal.Signals, status: int
) -> None:
    """M04: its statement is ended by the server, the lock is free, and nothing has to be tidied up."""
    start = migrators()
    with look.gate(where) as arrived:
        first = start.start()
        arrived()
        second = start.start()
        second.wait_for_err(f"pid {first.pid}, for ")
        first.kill(how)
        assert first.wait() == status
        # The gate is still shut: it was not the gate that ended the first one's statement.
        wait_until(lambda: (found := look.holder()) is not None and found[0] == second.pid, "the second one's turn")
        if where == 3:
            assert look.migrations() == MIGRATIONS[:2]
    assert second.wait() == 0
    look.assert_migrated()
    assert look.advisory_locks() == []


def test_sigterm_ends_the_building_of_an_index_and_names_what_it_leaves(migrators: MakeMigrators, look: Look) -> None:
    start = migrators()
    with look.old_snapshot() as arrived:
        run = start.start()
        arrived()
        run.kill(signal.SIGTERM)
        assert run.wait() == 143
    assert "The index public.depot_crate_weight on depot_crate is invalid" in run.err
    assert "DROP INDEX CONCURRENTLY public.depot_crate_weight;" in run.err
    assert start.run().wait() == 0
    look.assert_migrated()


def test_sigterm_ends_who_waits_and_leaves_the_holder_alone(migrators: MakeMigrators, look: Look) -> None:
    start = migrators()
    with look.gate(3) as arrived:
        first = start.start()
        arrived()
        second = start.start()
        second.wait_for_err("Waiting for the migration lock")
        second.kill(signal.SIGTERM)
        assert second.wait() == 143
    assert first.wait() == 0
    look.assert_migrated()


def test_a_restart_of_the_server_fails_the_holder_and_the_others_go_on(
    migrators: MakeMigrators, database: str, postgres: EmbeddedPostgres
) -> None:
    start = migrators()
    with Look(database) as before, before.gate(3) as arrived:
        holder = start.start()
        arrived()
        others = start.start_many(2)
        for run in others:
            run.wait_for_err("Waiting for the migration lock")
        postgres.restart("immediate")
    assert holder.wait() == 1
    assert [run.wait() for run in others] == [0] * len(others)
    with Look(database) as after:
        after.assert_migrated()


@pytest.mark.parametrize(
    ("definition", "status"),
    [("(weight)", 0), ("(weight DESC)", 1), ("(weight) WHERE weight > 0", 1), ("(weight, id)", 1), ("(label)", 1)],
)
def test_an_index_that_was_built_and_not_recorded_is_kept_if_it_is_the_same(
    migrators: MakeMigrators, look: Look, definition: str, status: int
) -> None:
    """What a process leaves that is killed between the end of the building and the recording."""
    start = migrators()
    assert start.run("depot", "0003").wait() == 0
    look.connection.execute(f"CREATE INDEX depot_crate_weight ON depot_crate {definition}")
    built = look.column("SELECT 'depot_crate_weight'::regclass::oid")
    run = start.run()
    assert run.wait() == status
    assert look.column("SELECT 'depot_crate_weight'::regclass::oid") == built
    if status == 0:
        look.assert_migrated()
        assert "The index depot_crate_weight is there as depot.0004_index builds it" in run.err
        assert start.run("depot", "0003").wait() == 0, "the way back drops it"
        assert look.rows("SELECT FROM pg_class WHERE relname = 'depot_crate_weight'") == []
    else:
        assert 'relation "depot_crate_weight" already exists' in run.err
        assert look.migrations() == MIGRATIONS[:3]


def test_an_index_of_that_name_on_another_table_is_not_taken_for_it(migrators: MakeMigrators, look: Look) -> None:
    start = migrators()
    assert start.run("depot", "0003").wait() == 0
    look.connection.execute("CREATE TABLE other (weight integer)")
    look.connection.execute("CREATE INDEX depot_crate_weight ON other (weight)")
    assert start.run().wait() == 1
    assert look.migrations() == MIGRATIONS[:3]


def test_an_invalid_index_of_an_applied_migration_is_named_with_its_repair(
    migrators: MakeMigrators, look: Look
) -> None:
    start = migrators()
    assert start.run().wait() == 0
    look.connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'depot_crate_weight'::regclass")
    run = start.run()
    assert run.wait() == 0
    assert "Repair it with: REINDEX INDEX CONCURRENTLY public.depot_crate_weight;" in run.err
    look.connection.execute("REINDEX INDEX CONCURRENTLY public.depot_crate_weight;")
    assert start.run().err == ""
