"""Invalid indexes: what an interrupted CREATE INDEX CONCURRENTLY leaves behind, in the way of its repetition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

# `at_work`: the server process that builds one on that table just now. Autovacuum, which has no user, is not meant.
_INVALID = """
    SELECT c.relname, quote_ident(n.nspname) || '.' || quote_ident(c.relname), i.indrelid::regclass::text, (
        SELECT min(l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'relation' AND l.relation = i.indrelid AND l.mode = 'ShareUpdateExclusiveLock' AND l.granted
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND l.pid <> pg_backend_pid() AND a.usesysid IS NOT NULL
    ) AS at_work
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE NOT i.indisvalid AND c.relkind = 'i' AND pg_table_is_visible(c.oid)
    ORDER BY c.relname
"""


@dataclass(frozen=True, slots=True)
class InvalidIndex:
    """`identifier` is quoted for a statement. `at_work`: the server process that may be building it just now."""

    name: str
    identifier: str
    table: str
    at_work: int | None

    @property
    def drop(self) -> str:
        return f"DROP INDEX CONCURRENTLY {self.identifier}"

    @property
    def rebuild(self) -> str:
        return f"REINDEX INDEX CONCURRENTLY {self.identifier}"

    def advice(self, *, all_applied: bool) -> str:
        """Say what is wrong and which statement repairs it. `all_applied`: no migration is left that would make it."""
        found = f"The index {self.identifier} on {self.table} is invalid: its building was interrupted or has failed."
        if self.at_work is not None:
            return f"{found} Or it is being built just now: server process {self.at_work} works on the table."
        if self.name.rstrip("0123456789").endswith(("_ccnew", "_ccold")):  # a copy that REINDEX has left behind
            return f"{found} Remove it with: {self.drop};"
        if all_applied:
            return f"{found} Repair it with: {self.rebuild};"
        return (
            f"{found} If the migration that makes it has not been applied: {self.drop}; and run migrate again."
            f" If it has: {self.rebuild};"
        )


def invalid_indexes(connection: BaseDatabaseWrapper) -> list[InvalidIndex]:
    with connection.cursor() as cursor:
        cursor.execute(_INVALID)
        return [InvalidIndex(*row) for row in cursor.fetchall()]


def remove_half_built(connection: BaseDatabaseWrapper, migration: Any, *, backwards: bool) -> list[str]:
    """Before a migration: drop the invalid indexes that it is about to build, and return their names.

    `AddIndexConcurrently` fails where its index is there, so that no replica could repeat an interrupted migration. An
    invalid index serves nobody, this one belongs to a migration that is not applied, and while the migration lock is
    held no other run is building it; one on whose table somebody else is at work is left alone.
    """
    names = set(_built_concurrently(migration.operations, backwards=backwards))
    if not names or connection.in_atomic_block:
        return []
    removed = []
    for index in invalid_indexes(connection):
        if index.name in names and index.at_work is None:
            with connection.cursor() as cursor:
                cursor.execute(index.drop)
            removed.append(index.identifier)
    return removed


def _built_concurrently(operations: Iterable[Any], *, backwards: bool) -> Iterator[str]:
    from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently

    for operation in operations:
        yield from _built_concurrently(getattr(operation, "database_operations", ()), backwards=backwards)
        if isinstance(operation, RemoveIndexConcurrently) and backwards:
            yield operation.name
        elif isinstance(operation, AddIndexConcurrently) and not backwards:
            yield operation.index.name
