"""`migration_lock()` and `pending_migrations()`, as other code calls them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings

from django_reliable_jobs.errors import MigrationLockLost, MigrationLockTimeout
from django_reliable_jobs.migration_lock import lock, lock_status, migration_lock, pending_migrations
from testproject.postgres import EmbeddedPostgres
from tests.chaos.proxy import Proxy
from tests.support.migrate.runs import Look, Migrators, wait_until


@pytest.fixture
def look(database_url: str) -> Iterator[Look]:
    with Look(database_url) as made:
        yield made


def test_inside_the_block_a_migrate_command_elsewhere_waits_and_one_here_runs(
    database_url: str, tmp_path: Path
) -> None:
    elsewhere = Migrators(database_url, tmp_path, DJANGO_SETTINGS_MODULE="tests.settings")
    with migration_lock():
        assert elsewhere.run("--lock-timeout", "0.3").wait() == 75, elsewhere.report()
        call_command("migrate", verbosity=0, lock_timeout=0.1)
        with migration_lock(timeout=0.1):
            pass
        assert "is held by host" in lock_status()
    assert lock_status().endswith(" is free.")
    assert elsewhere.run("--lock-timeout", "60").wait() == 0, elsewhere.report()


def test_it_gives_up_after_the_timeout_and_says_who_holds_it(look: Look) -> None:
    with migration_lock() as held:
        lines: list[str] = []
        del lock._held.by_alias["default"]  # as if it were another thread's
        with pytest.raises(MigrationLockTimeout, match=r"held by host .+, pid \d+, for "):
            with migration_lock(timeout=0.2, report=lines.append):
                raise AssertionError
        assert lines[0].startswith("Waiting for the migration lock, held by host ")
        held.check()
        lock._held.by_alias["default"] = held


def test_check_and_the_end_of_the_block_tell_of_a_lock_that_was_cut_off(look: Look) -> None:
    block = migration_lock()
    held = block.__enter__()
    found = look.holder()
    assert found is not None
    look.connection.execute("SELECT pg_terminate_backend(%s, 30000)", [found[1]])
    with pytest.raises(MigrationLockLost, match="was cut"):
        held.check()
    with pytest.raises(MigrationLockLost, match="was cut"):
        block.__exit__(None, None, None)
    with migration_lock(timeout=1):
        pass


def test_an_error_in_the_block_comes_out_as_it_is_and_frees_the_lock(look: Look) -> None:
    with pytest.raises(ZeroDivisionError), migration_lock():
        _ = 1 / 0
    wait_until(lambda: look.advisory_locks() == [], "the lock to be free")


def test_a_transaction_of_the_caller_has_nothing_to_do_with_it(look: Look) -> None:
    with transaction.atomic():
        with migration_lock():
            assert len(look.advisory_locks()) == 1
        assert look.advisory_locks() == []


@override_settings(RELIABLE_JOBS={"MIGRATE": {"POOLER": True}})
def test_a_lock_held_by_a_transaction_outlives_the_timeouts_of_the_database(look: Look) -> None:
    name = connection.settings_dict["NAME"]
    timeouts = [
        str(found)
        for found in look.column(
            "SELECT name FROM pg_settings WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"
        )
    ]
    try:
        for timeout in timeouts:
            look.connection.execute(f"ALTER DATABASE {name} SET {timeout} = '500ms'")
        with migration_lock() as held:
            began = time.monotonic()
            wait_until(lambda: time.monotonic() - began > 1.5, "three times the timeout")
            held.check()
            assert look.rows(
                "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND backend_xmin IS NULL"
            )
    finally:
        for timeout in timeouts:
            look.connection.execute(f"ALTER DATABASE {name} RESET {timeout}")


def test_a_lock_behind_a_network_that_has_frozen_counts_as_cut(
    look: Look, postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "PULSE", 0.2)
    monkeypatch.setattr(lock, "PATIENCE", 1.0)
    original = connections["default"].settings_dict
    with Proxy(("127.0.0.1", postgres.port)) as proxy:
        behind = original | {"HOST": "127.0.0.1", "PORT": str(proxy.port), "PASSWORD": postgres.password}
        connections["default"].settings_dict = behind
        lines: list[str] = []
        try:
            block = migration_lock(report=lines.append)
            held = block.__enter__()
            with proxy.frozen():
                wait_until(lambda: lines, "the pulse to notice")
                with pytest.raises(MigrationLockLost, match="no answer"):
                    held.check()
            with pytest.raises(MigrationLockLost, match="no answer"):
                block.__exit__(None, None, None)
        finally:
            connections["default"].settings_dict = original
        assert "was cut: there was no answer within 1 s" in lines[0]


def test_nothing_is_pending_in_a_migrated_database_and_the_answer_is_cheap(transactional_db: None) -> None:
    assert pending_migrations() is False


def test_a_migration_that_is_not_recorded_is_pending(transactional_db: None) -> None:
    row = MigrationRecorder.Migration.objects.filter(app="django_reliable_jobs").latest("id")
    row.delete()
    try:
        assert pending_migrations() is True
    finally:
        MigrationRecorder(connection).record_applied(row.app, row.name)
    MigrationRecorder(connection).record_applied("django_reliable_jobs", "9999_of_a_newer_version")
    assert pending_migrations() is False
    MigrationRecorder(connection).record_unapplied("django_reliable_jobs", "9999_of_a_newer_version")


def test_all_is_pending_in_an_empty_database(transactional_db: None, postgres: EmbeddedPostgres) -> None:
    wrapper = connections["default"]
    settings = wrapper.settings_dict
    wrapper.close()
    wrapper.settings_dict = settings | {"NAME": "postgres"}
    try:
        assert pending_migrations() is True
    finally:
        wrapper.close()
        wrapper.settings_dict = settings


@override_settings(MIGRATION_MODULES={"django_reliable_jobs": None})
def test_without_migrations_the_tables_themselves_count(transactional_db: None) -> None:
    assert pending_migrations() is False
