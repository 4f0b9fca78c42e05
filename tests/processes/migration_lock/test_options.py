"""The command's options, its exit statuses, and that Django's own are as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.migrate.runs import MIGRATIONS, Look, Migrators

MakeMigrators = Callable[..., Migrators]


def test_a_wait_that_is_too_long_ends_with_75_and_names_the_holder(migrators: MakeMigrators, look: Look) -> None:
    start = migrators()
    with look.gate(3) as arrived:
        first = start.start()
        arrived()
        second = start.run("--lock-timeout", "0.5")
        assert second.wait() == 75
        assert second.out == ""
        assert "CommandError: Gave up after 0.5 s" in second.err
        assert f"held by host {second_host(second.err)}, pid {first.pid}, for " in second.err
        assert "Traceback" not in second.err
        assert look.migrations() == MIGRATIONS[:2]
        by_setting = start.run(RELIABLE_JOBS_JSON='{"MIGRATE": {"LOCK_TIMEOUT": 0.5}}')
        assert by_setting.wait() == 75
        quiet = start.run("--lock-timeout", "0.5", "--verbosity", "0")
        assert quiet.wait() == 75
        assert f"pid {first.pid}" in quiet.err
    assert first.wait() == 0
    look.assert_migrated()


def second_host(text: str) -> str:
    return text.split("held by host ")[1].split(",")[0]


def test_zero_waits_for_ever(migrators: MakeMigrators, look: Look) -> None:
    start = migrators(RELIABLE_JOBS_JSON='{"MIGRATE": {"LOCK_TIMEOUT": 0.1}}')
    with look.gate(3) as arrived:
        first = start.start()
        arrived()
        second = start.start("--lock-timeout", "0")
        second.wait_for_err("Waiting for the migration lock")
        assert start.run().wait() == 75  # has waited for longer than the setting; the second one still waits
        assert second.process.poll() is None
    assert [first.wait(), second.wait()] == [0, 0]


def test_a_lock_that_somebody_else_holds_by_hand_is_respected(migrators: MakeMigrators, look: Look) -> None:
    look.connection.execute("SELECT pg_advisory_lock(42)")
    pid = look.column("SELECT pg_backend_pid()")[0]
    run = migrators(RELIABLE_JOBS_JSON='{"MIGRATE": {"KEY": 42}}').run("--lock-timeout", "0.5")
    assert run.wait() == 75
    assert f"held by server process {pid}" in run.err


def test_no_lock_neither_waits_nor_takes_it(migrators: MakeMigrators, look: Look) -> None:
    start = migrators()
    with look.gate(3) as arrived:
        first = start.start()
        arrived()
        assert start.run("contenttypes", "--no-lock").wait() == 0
    assert first.wait() == 0


def test_lock_status_says_who_holds_it(migrators: MakeMigrators, look: Look) -> None:
    start = migrators()
    free = start.run("--lock-status")
    assert free.wait() == 0
    assert "schema 'public'" in free.out
    assert free.out.strip().endswith("is free.")
    with look.gate(3) as arrived:
        first = start.start()
        arrived()
        held = start.run("--lock-status")
        assert held.wait() == 0
        assert f"pid {first.pid}, for " in held.out
    assert first.wait() == 0


def test_what_only_reads_does_not_wait(migrators: MakeMigrators, look: Look) -> None:
    start = migrators()
    with look.gate(3) as arrived:
        first = start.start()
        arrived()
        check, plan = start.run("--check"), start.run("--plan")
        assert (check.wait(), check.out, check.err) == (1, "", "")
        assert plan.wait() == 0
        assert "depot.0004_index" in plan.out
        pruning = start.run("depot", "--prune", "--check", "--lock-timeout", "0.5")
        assert pruning.wait() == 75  # writes
    assert first.wait() == 0
    assert start.run("--check").wait() == 0


def test_djangos_options_do_what_they_did(migrators: MakeMigrators, look: Look) -> None:
    start = migrators()
    assert start.run("depot", "0003").wait() == 0
    assert start.run("depot", "--fake").wait() == 0
    assert look.migrations() == MIGRATIONS
    assert not look.rows("SELECT FROM pg_class WHERE relname = 'depot_crate_weight'")
    assert start.run("depot", "0003", "--fake").wait() == 0
    assert start.run("depot").wait() == 0
    assert start.run("depot", "0005").wait() == 0
    backwards = start.run("depot", "0003")
    assert backwards.wait() == 0
    assert "Unapplying depot.0004_index... OK" in backwards.out
    assert look.migrations() == MIGRATIONS[:3]
    nonsense = start.run("depot", "0099")
    assert nonsense.wait() == 1
    assert nonsense.err == "CommandError: Cannot find a migration matching '0099' from app 'depot'.\n"


def test_run_syncdb_makes_tables_of_apps_without_migrations(
    migrators: MakeMigrators, look: Look, tmp_path: Path
) -> None:
    app = tmp_path / "shed"
    app.mkdir()
    (app / "__init__.py").write_text("")
    (app / "models.py").write_text("from django.db import models\nclass Tool(models.Model):\n    pass\n")
    start = migrators(MORE_APPS="shed")
    start.env["PYTHONPATH"] += f":{tmp_path}"
    runs = start.start_many(3, "--run-syncdb")
    assert [run.wait() for run in runs] == [0] * 3
    assert sum("Creating table shed_tool" in run.out for run in runs) == 1
    look.assert_migrated()


def test_a_database_that_is_down_is_told_at_once(migrators: MakeMigrators) -> None:
    run = migrators("postgresql://postgres@/gone?host=/nowhere").run()
    assert run.wait() == 1
    assert "OperationalError" in run.err


@pytest.mark.parametrize("value", ["-1", "nan", "soon"])
def test_a_wrong_timeout_is_refused(migrators: MakeMigrators, value: str) -> None:
    run = migrators().run("--lock-timeout", value)
    assert run.wait() in (1, 2)
    assert "Traceback" not in run.err


def test_the_mixin_goes_before_the_command_of_another_app(migrators: MakeMigrators, look: Look, tmp_path: Path) -> None:
    app = tmp_path / "other" / "management" / "commands"
    app.mkdir(parents=True)
    for folder in (app, app.parent, app.parent.parent):
        (folder / "__init__.py").write_text("")
    (app / "migrate.py").write_text(
        "from django.core.management.commands.migrate import Command as Migrate\n"
        "class Other(Migrate):\n"
        "    def handle(self, *args, **options):\n"
        "        self.stdout.write('the other app')\n"
        "        return super().handle(*args, **options)\n"
        "from django_reliable_jobs.migration_lock import MigrationLockMixin\n"
        "class Command(MigrationLockMixin, Other):\n"
        "    pass\n"
    )
    start = migrators(MORE_APPS="other")
    start.env["PYTHONPATH"] += f":{tmp_path}"
    with look.gate(3) as arrived:
        first = start.start()
        arrived()
        assert start.run("--lock-timeout", "0.5").wait() == 75
    assert first.wait() == 0
    assert first.out.startswith("the other app\n")
    look.assert_migrated()
