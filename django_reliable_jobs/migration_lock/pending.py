"""Whether the tables of this app are there, as this version of the package needs them."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

APP = "django_reliable_jobs"


def pending_migrations(alias: str = DEFAULT_DB_ALIAS) -> bool:
    """Return True while a migration of this app has not been applied to that database. Two short queries.

    Only this app's migrations are looked at, and no migration graph is built, so that it may be asked again and again.
    Migrations that the database has and this version does not know (it was rolled back) are not pending.
    """
    connection = connections[alias]
    module_name, _ = MigrationLoader.migrations_module(APP)
    recorder = MigrationRecorder(connection)
    if module_name is None:  # MIGRATION_MODULES switches migrations off, for tests: the tables are made without them
        from django_reliable_jobs.models import Job

        return Job._meta.db_table not in connection.introspection.table_names()
    if not recorder.has_table():
        return True
    applied = set(recorder.migration_qs.filter(app=APP).values_list("name", flat=True))
    package = import_module(module_name)
    names = {name for _, name, is_package in pkgutil.iter_modules(package.__path__) if not is_package}
    return any(not _covered(module_name, name, applied) for name in names if name[0] not in "_~")


def _covered(package: str, name: str, applied: set[str]) -> bool:
    """A squashed migration is applied too when all that it replaces is."""
    if name in applied:
        return True
    replaced = {old for app, old in import_module(f"{package}.{name}").Migration.replaces if app == APP}
    return bool(replaced) and replaced <= applied
