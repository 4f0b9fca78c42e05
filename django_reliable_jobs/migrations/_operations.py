"""Operations for an app whose rows live on PostgreSQL, and whose tables are made in every database of the project.

A project's second alias may be of another kind. Without our tables there its admin and its `dumpdata` break, so only what
such a database does not have is left out. (Django does not take a module with a leading underscore for a migration.)
"""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db.migrations import AddConstraint, AddIndex, RemoveConstraint, RemoveIndex, RunSQL
from django.db.models import UniqueConstraint


class PostgreSQLOnly(RunSQL):
    """SQL for PostgreSQL; on another database nothing happens."""

    def database_forwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, *states)

    def database_backwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_backwards(app_label, schema_editor, *states)


def online(schema_editor: Any) -> bool:
    """Whether an index can be built, or dropped, while others write the table. Not in a transaction, such as a test's."""
    return schema_editor.connection.vendor == "postgresql" and not schema_editor.connection.in_atomic_block


class AddIndexOnline(AddIndexConcurrently):
    """`AddIndexConcurrently` where that is possible, `AddIndex` elsewhere. The migration says `atomic = False`."""

    def database_forwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        kind = AddIndexConcurrently if online(schema_editor) else AddIndex
        kind.database_forwards(self, app_label, schema_editor, *states)

    def database_backwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        kind = AddIndexConcurrently if online(schema_editor) else AddIndex
        kind.database_backwards(self, app_label, schema_editor, *states)


class RemoveIndexOnline(RemoveIndexConcurrently):
    """`RemoveIndexConcurrently` where that is possible, `RemoveIndex` elsewhere."""

    def database_forwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        kind = RemoveIndexConcurrently if online(schema_editor) else RemoveIndex
        kind.database_forwards(self, app_label, schema_editor, *states)

    def database_backwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        kind = RemoveIndexConcurrently if online(schema_editor) else RemoveIndex
        kind.database_backwards(self, app_label, schema_editor, *states)


class AddUniqueOnline(AddIndexConcurrently):
    """A unique constraint with a condition or an expression, which is an index: built while others write the table.

    To the migration lock it is an index like those of `AddIndexConcurrently`, should an interrupted run have left it.
    """

    index: Any  # the constraint: it has a name, and makes its SQL, as an index does

    def __init__(self, model_name: str, constraint: UniqueConstraint) -> None:
        self.model_name = model_name
        self.index = self.constraint = constraint

    def deconstruct(self) -> Any:
        return self.__class__.__name__, [], {"model_name": self.model_name, "constraint": self.constraint}

    def describe(self) -> str:
        return f"Create unique index {self.constraint.name} on model {self.model_name}"

    def state_forwards(self, app_label: str, state: Any) -> None:
        AddConstraint.state_forwards(self, app_label, state)

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            add_unique(model, schema_editor, self.constraint)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            remove_unique(model, schema_editor, self.constraint)


class RemoveUniqueOnline(RemoveIndexConcurrently):
    """The reverse of `AddUniqueOnline`."""

    def describe(self) -> str:
        return f"Remove unique index {self.name} from model {self.model_name}"

    def state_forwards(self, app_label: str, state: Any) -> None:
        RemoveConstraint.state_forwards(self, app_label, state)

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            remove_unique(model, schema_editor, self._constraint(app_label, from_state))

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            add_unique(model, schema_editor, self._constraint(app_label, to_state))

    def _constraint(self, app_label: str, state: Any) -> Any:
        return state.models[app_label, self.model_name_lower].get_constraint_by_name(self.name)


def add_unique(model: Any, schema_editor: Any, constraint: Any) -> None:
    if online(schema_editor):
        statement = str(constraint.create_sql(model, schema_editor))
        assert statement.startswith("CREATE UNIQUE INDEX "), statement
        schema_editor.execute(statement.replace("INDEX", "INDEX CONCURRENTLY", 1), params=None)
    else:
        schema_editor.add_constraint(model, constraint)


def remove_unique(model: Any, schema_editor: Any, constraint: Any) -> None:
    if online(schema_editor):
        name = schema_editor.quote_name(constraint.name)
        schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}", params=None)
    else:
        schema_editor.remove_constraint(model, constraint)
