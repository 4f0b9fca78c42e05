"""Indexes that an interrupted run has built to the end without having come to record its migration.

A process that is killed inside CREATE INDEX CONCURRENTLY leaves a statement that the server may well finish, behind a
pooler always; and one that is killed just after it leaves the same. `AddIndexConcurrently` would then fail in every replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import Error, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import SeparateDatabaseAndState

_TWIN = "django_reliable_jobs_twin"

# What makes two indexes the same: everything in the definition but the names of the index and of its table.
_DEFINITION = """
    SELECT split_part(pg_get_indexdef(i.indexrelid), ' USING ', 1) LIKE 'CREATE UNIQUE%%',
           substr(pg_get_indexdef(i.indexrelid), strpos(pg_get_indexdef(i.indexrelid), ' USING '))
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relname = %s AND i.indrelid = to_regclass(%s) AND i.indisvalid AND i.indisready
"""


def adopt_finished(connection: BaseDatabaseWrapper, migration: Any) -> list[str]:
    """Before a migration: have it pass over indexes that are there just as it is about to build them; their names.

    An index of that name that differs in anything is left to Django, which fails as it always does.
    """
    from django.contrib.postgres.operations import AddIndexConcurrently

    wanted = [op for op in migration.operations if isinstance(op, AddIndexConcurrently)]
    if connection.in_atomic_block or not _are_there(connection, [op.index.name for op in wanted]):
        return []  # nearly always: no state has to be computed
    adopted = []
    for number, model in _models(connection, migration, wanted):
        index = migration.operations[number].index
        with connection.cursor() as cursor:
            cursor.execute(_DEFINITION, [index.name, connection.ops.quote_name(model._meta.db_table)])
            found = cursor.fetchone()
        if found is not None and found == _definition_of(connection, model, index):
            operation = migration.operations[number]
            migration.operations[number] = SeparateDatabaseAndState(state_operations=[operation])
            adopted.append(index.name)
    return adopted


def _are_there(connection: BaseDatabaseWrapper, names: list[str]) -> bool:
    if not names:
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_class WHERE relkind = 'i' AND relname = ANY (%s)", [names])
        return cursor.fetchone() is not None


def _models(connection: BaseDatabaseWrapper, migration: Any, wanted: list[Any]) -> Iterator[tuple[int, Any]]:
    """The place of each operation, and its model as the migration has it at that point."""
    loader = MigrationLoader(connection)
    state = loader.project_state((migration.app_label, migration.name), at_end=False)
    for number, operation in enumerate(migration.operations):
        operation.state_forwards(migration.app_label, state)
        if operation in wanted:
            yield number, state.clone().apps.get_model(migration.app_label, operation.model_name)


def _definition_of(connection: BaseDatabaseWrapper, model: Any, index: Any) -> tuple[Any, ...] | None:
    """What the server makes of the index, tried on an empty twin of the table that nobody sees; None if it cannot be."""
    quote = connection.ops.quote_name
    table, model._meta.db_table = model._meta.db_table, _TWIN  # the model is the copied state's own
    try:
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            with connection.schema_editor(collect_sql=True, atomic=False) as editor:
                statement = str(index.create_sql(model, editor))
            cursor.execute(f"CREATE TEMPORARY TABLE {quote(_TWIN)} (LIKE {quote(table)}) ON COMMIT DROP")
            cursor.execute(statement)
            cursor.execute(_DEFINITION, [index.name, _TWIN])
            row: tuple[Any, ...] | None = cursor.fetchone()
    except Error:  # the role may not make temporary tables, say
        return None
    return row
