"""The system checks W003 and W004."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import get_commands
from django.db import connections
from django.test import override_settings

from django_reliable_jobs.checks.migrate import check_direct_alias, check_migrate_command

INSTALLED = ["django.contrib.contenttypes", "django.contrib.auth", "django_reliable_jobs"]
PLAIN = "from django.core.management.commands.migrate import Command\n"
LOCKED = (
    "from django.core.management.commands.migrate import Command as Migrate\n"
    "from django_reliable_jobs.migration_lock import MigrationLockMixin\n"
    "class Command(MigrationLockMixin, Migrate): pass\n"
)


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an app `other_migrate`, into which a test writes its command."""
    commands = tmp_path / "other_migrate" / "management" / "commands"
    commands.mkdir(parents=True)
    for folder in (commands, commands.parent, commands.parent.parent):
        (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    get_commands.cache_clear()
    yield commands / "migrate.py"
    get_commands.cache_clear()
    for name in [name for name in sys.modules if name.startswith("other_migrate")]:
        del sys.modules[name]


def ids(messages: list[object]) -> list[object]:
    return [message.id for message in messages]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("apps", "command", "text"),
    [
        (["other_migrate", *INSTALLED], PLAIN, "`migrate` is the command of other_migrate, which does not take"),
        ([*INSTALLED, "other_migrate"], PLAIN, "hides the `migrate` command of other_migrate"),
        (["other_migrate", *INSTALLED], LOCKED, None),
        (INSTALLED, PLAIN, None),
    ],
)
def test_w003_another_app_has_a_migrate_command(other: Path, apps: list[str], command: str, text: str | None) -> None:
    other.write_text(command)
    with override_settings(INSTALLED_APPS=apps):
        get_commands.cache_clear()
        found = check_migrate_command()
    assert ids(found) == ([] if text is None else ["reliable_jobs.W003"])
    assert text is None or text in found[0].msg


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["reliable_jobs.W004"]),
        ({"TEST": {"MIRROR": "default"}}, []),
        ({"HOST": None}, []),  # the same address as `default`: Django makes one test database for both
    ],
)
def test_w004_the_direct_alias_would_make_a_second_test_database(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], expected: list[str]
) -> None:
    default = connections.settings["default"]
    mirror = {"MIRROR": None} | changes.get("TEST", {})  # type: ignore[operator]
    direct = default | {"HOST": "elsewhere" if "HOST" not in changes else default["HOST"]}
    direct["TEST"] = default["TEST"] | mirror
    monkeypatch.setitem(connections.settings, "straight", direct)
    with override_settings(RELIABLE_JOBS={"MIGRATE": {"DATABASE": "straight"}}):
        found = check_direct_alias()
    if hasattr(connections._connections, "straight"):  # the wrapper of this alias, with these settings
        del connections["straight"]
    assert ids(found) == expected
