from __future__ import annotations

from typing import Any

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """`schema` is where its statements go, until somebody sets another."""

    schema = "public"

    def set_schema(self, name: str) -> None:
        self.schema = name

    def create_cursor(self, name: str | None = None) -> Any:
        cursor = super().create_cursor(name)
        cursor.execute(f"SET search_path = {self.schema}")
        return cursor
