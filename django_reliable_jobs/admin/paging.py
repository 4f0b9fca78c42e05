"""Lists of tables of any size: a window of so many rows in the order of an index, and links to the next window.

Nothing here counts, sorts or scans the table. A page looks at one window: at most so many rows from where it begins.
Filters that no index serves are tried on these rows only; the count and the page numbers are the window's; "look
further back" begins the next window where this one ends. So a page costs the same on ten thousand rows and on ten
million, at any depth, and says how far it has looked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import ExpressionWrapper, F, Model, Q, QuerySet
from django.http import HttpRequest

if TYPE_CHECKING:
    from django_reliable_jobs.admin.base import OperationsAdmin

#: Rows of a window: of a list as it is, of one with filters that may leave little of it, and of a search in texts.
WINDOW, FILTERED, SEARCHED = 5_000, 100_000, 20_000
#: The query parameter that says where a window begins.
FROM_VAR = "from"

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Path:
    """An order that an index gives: `columns` as in `order_by`, unique together, the last one being the primary key;
    `base` is the condition under which the index serves it; `serves` are parameters that it serves beside those that the
    list always serves."""

    columns: tuple[str, ...]
    base: Q = field(default_factory=Q)
    serves: frozenset[str] = frozenset()

    def rows(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(self.base).order_by(*self.columns)

    def since(self, key: Key) -> Q:
        """Rows at `key` and after it."""
        return self._beyond(key, after=True)

    def before(self, key: Key) -> Q:
        """Rows ahead of `key`, without it."""
        return self._beyond(key, after=False)

    def end(self, queryset: QuerySet[Any], begin: Key | None, rows: int) -> Key | None:
        """The key of the first row behind a window of `rows`; None when the table ends within it."""
        within = self.rows(queryset)
        if begin is not None:
            within = within.filter(self.since(begin))
        within, names = self.selected(within.select_related(None))
        end: Key | None = within.values_list(*names)[rows : rows + 1].first()
        # Moments beyond the calendar are read as the nearest one (raw SQL), so that such a key may lead back to where it began.
        return None if end == begin else end

    def selected(self, queryset: QuerySet[Any]) -> tuple[QuerySet[Any], list[str]]:
        """With the columns of the key under names of their own, and those.

        Django 6.1 orders by the place in the list of what is selected, and no index has a moment as it is read.
        """
        fields = queryset.model._meta
        columns = [name.removeprefix("-") for name in self.columns]
        key = {
            f"key_{name}": ExpressionWrapper(
                F(name), output_field=fields.pk if name == "pk" else fields.get_field(name)
            )
            for name in columns
        }
        return queryset.annotate(**key), list(key)

    def within(self, queryset: QuerySet[Any], begin: Key | None, end: Key | None) -> QuerySet[Any]:
        """The rows from `begin` on and before `end`; None is the beginning, or the end, of the table."""
        if begin is not None:
            queryset = queryset.filter(self.since(begin))
        return queryset if end is None else queryset.filter(self.before(end))

    def _beyond(self, key: Key, after: bool) -> Q:
        # The innermost comparison first: a > x OR (a = x AND (b > y OR …)), each by the column's own direction.
        last = len(self.columns) - 1
        found = Q()
        for position in range(last, -1, -1):
            name, value = self.columns[position], key[position]
            field = name.removeprefix("-")
            side = "gt" if after != name.startswith("-") else "lt"
            if position == last:
                found = Q(**{f"{field}__{side}{'e' if after else ''}": value})
            else:
                found = Q(**{f"{field}__{side}": value}) | (Q(**{field: value}) & found)
            if position == 0 and last:
                # Says nothing new, and lets the index begin there.
                found &= Q(**{f"{field}__{side}e": value})
        return found

    def write(self, key: Key) -> str:
        """The key as a query parameter."""
        return json.dumps([value.isoformat() if hasattr(value, "isoformat") else value for value in key])

    def read(self, model: type[Model], text: str | None) -> Key | None:
        """The key of a query parameter; None if there is none, or one that is nothing of this path."""
        try:
            values = json.loads(text or "null")
            if not isinstance(values, list) or len(values) != len(self.columns) or "\\u0000" in str(text):
                return None
            fields: list[Any] = [
                model._meta.pk if name.endswith("pk") else model._meta.get_field(name.removeprefix("-"))
                for name in self.columns
            ]
            return tuple(column.to_python(value) for column, value in zip(fields, values, strict=True))
        except (ValueError, TypeError, OverflowError, ValidationError, FieldDoesNotExist):
            return None


class WindowChangeList(ChangeList):
    """A changelist of one window. `older_url` leads to the next one, `newest_url` back to the first."""

    model_admin: OperationsAdmin
    older_url: str | None = None
    newest_url: str | None = None
    window_rows: int = WINDOW

    def __init__(self, request: HttpRequest, *args: Any) -> None:
        self.begin_text = request.GET.get(FROM_VAR)
        super().__init__(request, *args)

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        path = self.path = self.model_admin.window_path(request)
        found = self.filtered(request, exclude_parameters)
        begin = path.read(self.model, self.begin_text)
        unserved = self.get_filters_params().keys() - self.model_admin.served_filters - path.serves
        rows = SEARCHED if self.query else FILTERED if unserved else WINDOW
        end = path.end(self.root_queryset, begin, rows)
        self.window_rows = rows
        if end is not None:
            self.older_url = self._window_url(path.write(end))
        if begin is not None:
            self.newest_url = self._window_url(None)
        return path.within(found, begin, end)

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.query:
            self.full_result_count = self.result_count  # "Show all" leads away from a search only

    def filtered(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """All that match, in the order of the path."""
        return super().get_queryset(request, exclude_parameters).filter(self.path.base)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        return list(self.path.columns)

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        found = super().get_filters_params(params)
        found.pop(FROM_VAR, None)
        return found

    def get_query_string(self, new_params: Any = None, remove: Any = None) -> str:
        """Page numbers stay in their window; a filter begins at the newest again."""
        changes = dict(new_params or {})
        if PAGE_VAR not in changes:
            changes.setdefault(FROM_VAR, None)
        return super().get_query_string(changes, remove)

    def _window_url(self, begin: str | None) -> str:
        return super().get_query_string({FROM_VAR: begin, PAGE_VAR: None})
