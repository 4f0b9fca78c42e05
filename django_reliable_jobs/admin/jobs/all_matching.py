"""All jobs that match a list's filters, in batches that begin where the last one ended."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest, QueryDict

from django_reliable_jobs.admin.jobs import paths as jobs_paths
from django_reliable_jobs.admin.paging import Key, Path, WindowChangeList
from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.values.batch_size import BatchSize

if TYPE_CHECKING:
    from django_reliable_jobs.admin.jobs.changelist import JobAdmin

#: Jobs of one batch, and rows that it may read to find them.
BATCH, SCAN = 1_000, 20_000
#: Rows of each path that a page of confirmation counts in; of a search as many as a batch reads.
COUNTED = 100_000
#: Seconds that it goes on where it has found none.
COUNT_FOR = 2.0


class Matching(WindowChangeList):
    """The filters of a list without its window and its page."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        self.path = self.model_admin.window_path(request)
        self.found = self.filtered(request, exclude_parameters)
        return self.found

    def get_results(self, request: HttpRequest) -> None:
        pass


@dataclass(frozen=True)
class Cursor:
    """Where a walk goes on: which path, and from which key of it."""

    path: int = 0
    key: str | None = None

    def write(self) -> str:
        return json.dumps([self.path, self.key])

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Raises `ValueError`."""
        path, key = json.loads(text)
        if not isinstance(path, int) or not (key is None or isinstance(key, str)):
            raise ValueError(text)
        return cls(path, key)


class Walk:
    """Over the jobs that match `filters` (a query string) and whose status is one of `statuses`.

    Rows that leave the path when they are changed, or that come to it meanwhile, do not disturb the walk: it goes by key.
    """

    def __init__(self, admin: JobAdmin, request: HttpRequest, filters: str, statuses: tuple[JobStatus, ...]) -> None:
        self.admin = admin
        asked = copy.copy(request)
        asked.GET = QueryDict(filters)
        self.changes = Matching(asked, *_changelist_arguments(admin, asked))
        self.jobs: QuerySet[Job] = self.changes.found
        own = self.changes.path
        wanted = jobs_paths.status_of(asked.GET)
        if wanted is not None and wanted not in statuses:
            self.paths: list[Path] = []
        elif wanted is not None:
            self.paths = [own]
        elif own == jobs_paths.NEWEST_FIRST:
            queue = jobs_paths.queue_of(asked.GET)
            self.paths = [jobs_paths.by_status(status, queue=queue) for status in statuses]
        else:
            # Of a schedule or a search: few.
            base = own.base & Q(status__in=[str(status) for status in statuses])
            self.paths = [Path(own.columns, base, own.serves)]

    def tries(self, path: Path) -> bool:
        """Whether there are filters that the path does not serve, so that many rows may have to be read for one."""
        unserved = self.changes.get_filters_params().keys() - self.admin.served_filters - path.serves
        return bool(self.changes.query or unserved)

    @property
    def narrowed(self) -> bool:
        return bool(self.changes.get_filters_params() or self.changes.query)

    def batches(
        self, place: Cursor | None, size: BatchSize, exclude: Q | None = None
    ) -> Iterator[tuple[dict[int, str], Cursor | None]]:
        """(id -> name, where the next batch begins), until that is None."""
        while place is not None and place.path < len(self.paths):
            found, key = self._batch(self.paths[place.path], place.key, size.now, exclude)
            place = Cursor(place.path + 1) if key is None else Cursor(place.path, key)
            yield found, place if place.path < len(self.paths) else None

    def _batch(
        self, path: Path, begin_text: str | None, most: int, exclude: Q | None
    ) -> tuple[dict[int, str], str | None]:
        jobs = self.jobs if exclude is None else self.jobs.exclude(exclude)
        begin = path.read(Job, begin_text)
        # Where every row of the path matches, the limit is bound enough.
        end = path.end(self.changes.root_queryset, begin, SCAN) if self.tries(path) or exclude else None
        within, names = path.selected(path.within(path.rows(jobs), begin, end))
        rows = within.values_list("pk", "name", *names)[: most + 1]
        found = list(rows)
        if len(found) > most:
            end = found.pop()[2:]
        return {row[0]: row[1] for row in found}, None if end is None or end == begin else path.write(end)

    def count(self) -> tuple[int, bool]:
        """How many there are, and whether that is all.

        It looks at `COUNTED` rows of each path, and while there is none among them at further ones, for `COUNT_FOR` seconds.
        """
        total, complete, until = 0, True, time.monotonic() + COUNT_FOR
        for path in self.paths:
            begin: Key | None = None
            while True:
                end = path.end(self.changes.root_queryset, begin, SCAN if self.changes.query else COUNTED)
                total += path.within(path.rows(self.jobs), begin, end).order_by().count()
                if end is None:
                    break
                if total or time.monotonic() > until:
                    complete = False
                    break
                begin = end
        return total, complete


def _changelist_arguments(admin: JobAdmin, request: HttpRequest) -> list[Any]:
    """As `ModelAdmin.get_changelist_instance` calls it."""
    return [
        admin.model, admin.get_list_display(request), admin.list_display_links, admin.get_list_filter(request),
        admin.date_hierarchy, admin.get_search_fields(request), False, admin.list_per_page, admin.list_max_show_all,
        (), admin, (), None,
    ]  # fmt: skip
