"""System checks of the `migrate` command. Ids and remedies: `docs/reference/checks.md`.

Importing this module registers them. It has to happen when the app gets ready: what the databases are called then is
remembered, so that `migrate` can tell a test database from the configured one.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, register
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from django.core.management import get_commands, load_command_class
from django.db import connections
from django.utils.module_loading import module_has_submodule

from django_reliable_jobs import conf
from django_reliable_jobs.migration_lock.command import MigrationLockMixin
from django_reliable_jobs.migration_lock.target import remember_names, served_by

TAG = "reliable_jobs"
_DOCS = "docs/how-to/migrate-in-every-replica.md says how to combine them."

remember_names()


@register(TAG)
def check_migrate_command(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """W003: another app has a `migrate` command too, and one of the two is not run."""
    others = [config.name for config in apps.get_app_configs() if _has_migrate(config) and not _is_ours(config.name)]
    winner = get_commands().get("migrate")
    if not others or not isinstance(winner, str):
        return []
    if _is_ours(winner):
        return [
            CheckWarning(
                f"`migrate` is this app's, and hides the `migrate` command of {', '.join(others)}.",
                hint=_DOCS,
                id=f"{TAG}.W003",
            )
        ]
    if isinstance(load_command_class(winner, "migrate"), MigrationLockMixin):
        return []
    return [
        CheckWarning(
            f"`migrate` is the command of {winner}, which does not take the migration lock: replicas that run it at the"
            " same time are not kept apart.",
            hint=_DOCS,
            id=f"{TAG}.W003",
        )
    ]


@register(TAG)
def check_direct_alias(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """W004: test runners would make a second test database for the direct alias."""
    try:
        direct = conf.current().migrate["DATABASE"]
    except ImproperlyConfigured:  # E001 says so
        return []
    if direct is None or direct not in connections.settings:  # E002 says so
        return []
    served = served_by(direct)
    if direct == served or connections.settings[direct]["TEST"]["MIRROR"] or served not in connections.settings:
        return []
    if connections[direct].creation.test_db_signature() == connections[served].creation.test_db_signature():
        return []
    return [
        CheckWarning(
            f'RELIABLE_JOBS["MIGRATE"]["DATABASE"] is {direct!r}: tests would make a test database of its own for it.',
            hint=f'Add "TEST": {{"MIRROR": {served!r}}} to the alias {direct!r} in DATABASES.',
            id=f"{TAG}.W004",
        )
    ]


def _has_migrate(config: Any) -> bool:
    name = "management.commands.migrate"
    package = "management.commands"
    return all(module_has_submodule(config.module, part) for part in ("management", package, name))


def _is_ours(app: str) -> bool:
    return app == "django_reliable_jobs"
