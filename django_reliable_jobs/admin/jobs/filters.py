"""The filters of the job list. Their values come from small places, never from a walk through the table of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs import conf
from django_reliable_jobs.admin.jobs import paths as jobs_paths
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.models import CronSchedule, Job, JobStatus, QueueState, Worker
from django_reliable_jobs.store.queues_with_work import discover
from django_reliable_jobs.values.states import FINISHED

#: Values that one filter offers; any other can be given in the address.
MOST = 200
#: The value of the filter of attempts.
FAILED_LATELY = "failed"

SPANS = {"hour": (_("Past hour"), 3600), "day": (_("Past 24 hours"), 86_400), "week": (_("Past 7 days"), 604_800)}


class Choice(SimpleListFilter):
    """One value at a time; the one that is asked for is among the choices even where its source does not know it."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        found = list(self.offered(model_admin.get_queryset(request).db))[:MOST]
        asked = request.GET.get(str(self.parameter_name))
        if asked and asked not in {value for value, _label in found}:
            found.insert(0, (asked, asked))
        return found

    def offered(self, alias: str) -> Iterable[tuple[str, Any]]:
        raise NotImplementedError

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        value = self.value()
        if value is None:
            return queryset
        try:
            if "\0" in value:
                raise ValueError(value)
            return self.narrowed(queryset, value)
        except (ValueError, ValidationError) as error:
            raise IncorrectLookupParameters(error) from error

    def narrowed(self, queryset: QuerySet[Job], value: str) -> QuerySet[Job]:
        return queryset.filter(**{str(self.parameter_name): value})


class StatusFilter(Choice):
    title = _("status")
    parameter_name = "status"

    def offered(self, alias: str) -> Iterable[tuple[str, Any]]:
        return JobStatus.choices


class QueueFilter(Choice):
    """Those of the job definitions, of the settings, those that were ever paused, and where jobs wait."""

    title = _("queue")
    parameter_name = "queue"

    def offered(self, alias: str) -> Iterable[tuple[str, Any]]:
        known = {definition.queue for definition in registry.all_definitions()} | set(conf.current().queues)
        known |= set(QueueState.objects.using(alias).values_list("queue", flat=True)[:MOST])
        known |= {work.queue for work in discover(alias)[:MOST]}
        return [(name, name) for name in sorted(known)]


class NameFilter(Choice):
    title = _("job")
    parameter_name = "name"

    def offered(self, alias: str) -> Iterable[tuple[str, Any]]:
        return [(name, name) for name in sorted(registry.names())]


class WorkerFilter(Choice):
    title = _("worker")
    parameter_name = "worker"

    def offered(self, alias: str) -> Iterable[tuple[str, Any]]:
        return [(str(row.pk), str(row)) for row in Worker.objects.using(alias).order_by("host", "pid")[:MOST]]

    def narrowed(self, queryset: QuerySet[Job], value: str) -> QuerySet[Job]:
        return queryset.filter(locked_by=UUID(value))


class ScheduleFilter(Choice):
    """The path of the list is already that of the schedule."""

    title = _("schedule")
    parameter_name = "schedule"

    def offered(self, alias: str) -> Iterable[tuple[str, Any]]:
        names = CronSchedule.objects.using(alias).order_by("name").values_list("name", flat=True)
        return [(name, name) for name in names[:MOST]]

    def narrowed(self, queryset: QuerySet[Job], value: str) -> QuerySet[Job]:
        return queryset


class AttemptFilter(Choice):
    """The path of the list is already that of the attempts."""

    title = _("attempts")
    parameter_name = "attempts"

    def offered(self, alias: str) -> Iterable[tuple[str, Any]]:
        return [(FAILED_LATELY, _("Failed in the past hour"))]

    def narrowed(self, queryset: QuerySet[Job], value: str) -> QuerySet[Job]:
        if value != FAILED_LATELY:
            raise ValueError(value)
        return queryset


class TimeFilter(Choice):
    """By the end of finished jobs, if the list is of those; by the enqueue otherwise."""

    title = _("time")
    parameter_name = "time"

    def __init__(self, request: HttpRequest, *args: Any) -> None:
        self.field = time_field(request.GET)
        self.title = _("finished") if self.field == "finished_at" else _("enqueued")
        super().__init__(request, *args)

    def offered(self, alias: str) -> Iterable[tuple[str, Any]]:
        return [(name, label) for name, (label, _seconds) in SPANS.items()]

    def narrowed(self, queryset: QuerySet[Job], value: str) -> QuerySet[Job]:
        since = begin(value)
        if since is None:
            raise ValueError(value)
        return queryset.filter(**{f"{self.field}__gte": since})


def begin(span: str | None) -> datetime | None:
    """When the span of that name began; None if there is none."""
    return timezone.now() - timedelta(seconds=SPANS[span][1]) if span in SPANS else None


def time_field(params: Any) -> str:
    status = jobs_paths.status_of(params)
    return "finished_at" if status in FINISHED else "created_at"


FILTERS: list[type[Choice]] = [
    StatusFilter,
    QueueFilter,
    NameFilter,
    TimeFilter,
    AttemptFilter,
    ScheduleFilter,
    WorkerFilter,
]
