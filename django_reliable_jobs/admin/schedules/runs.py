"""Runs of schedules: what became of each fire time. Read-only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_reliable_jobs.admin.base import OperationsAdmin, manages
from django_reliable_jobs.admin.display import badge
from django_reliable_jobs.admin.jobs import filters as jobs_filters
from django_reliable_jobs.admin.jobs.filters import SPANS, Choice
from django_reliable_jobs.admin.overview.words import moment, span
from django_reliable_jobs.admin.paging import Path
from django_reliable_jobs.models import CronRun, CronSchedule, Job, Worker


class OfSchedule(jobs_filters.ScheduleFilter):
    """The list's path is then that of the schedule's fire times, by their own index."""

    def narrowed(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(name=value)


class OutcomeFilter(Choice):
    title = gettext_lazy("outcome")
    parameter_name = "outcome"

    def offered(self, alias: str) -> Iterable[tuple[str, Any]]:
        return CronRun.Outcome.choices


class FiredFilter(Choice):
    title = gettext_lazy("fired")
    parameter_name = "time"

    def offered(self, alias: str) -> Iterable[tuple[str, Any]]:
        return [(name, label) for name, (label, _seconds) in SPANS.items()]

    def narrowed(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value not in SPANS:
            raise ValueError(value)
        return queryset.filter(fired_at__gte=jobs_filters.begin(value))


@manages(CronRun)
class CronRunAdmin(OperationsAdmin):
    list_display = ("name", "when", "result", "late", "job", "by_whom")
    list_filter = (OfSchedule, OutcomeFilter, FiredFilter)
    served_filters = frozenset({"schedule", "time"})
    fields = (
        "schedule", "scheduled_for", "fired_at", "late", "by_whom", "outcome", "detail", "skipped_through",
        "skipped_count", "job", "result", "ended", "worker",
    )  # fmt: skip
    readonly_fields = fields

    def window_path(self, request: HttpRequest) -> Path:
        if request.GET.get("schedule"):
            return Path(("-scheduled_for", "-pk"), Q(name=request.GET["schedule"].replace("\0", "")))
        since = jobs_filters.begin(request.GET.get("time"))
        return Path(("-fired_at", "-pk"), Q() if since is None else Q(fired_at__gte=since))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changes = super().get_changelist_instance(request)
        changes.result_list = changes.result_list.with_job()  # for the rows of the page only
        return changes

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        run = super().get_object(request, object_id, from_field)
        return None if run is None else CronRun.objects.using(run._state.db).with_job().get(pk=run.pk)  # type: ignore[attr-defined]

    @admin.display(description=gettext_lazy("scheduled for"))
    def when(self, run: CronRun) -> str:
        return moment(run.scheduled_for)

    @admin.display(description=gettext_lazy("asked for"))
    def by_whom(self, run: CronRun) -> str:
        return _("by a person") if run.manual else _("by the schedule")

    @admin.display(description=gettext_lazy("schedule"))
    def schedule(self, run: CronRun) -> str | SafeString:
        found = CronSchedule.objects.using(run._state.db).filter(name=run.name).values_list("pk", flat=True).first()
        url = found and self.link_or_none("change", found, model=CronSchedule)
        return format_html('<a href="{}">{}</a>', url, run.name) if url else run.name

    @admin.display(description=gettext_lazy("result"))
    def result(self, run: CronRun) -> str | SafeString:
        if run.outcome == CronRun.Outcome.ENQUEUED:
            return badge(run.status) if run.status else _("not known any more")
        text = str(run.get_outcome_display())
        if run.skipped_count > 1:
            text += " " + _("(%(count)s fire times)") % {"count": f"{run.skipped_count:,}"}
        return text

    @admin.display(description=gettext_lazy("late"))
    def late(self, run: CronRun) -> str:
        seconds = run.lateness
        return f"{seconds:.1f} s" if abs(seconds) < 10 else span(seconds)

    @admin.display(description=gettext_lazy("job"))
    def job(self, run: Any) -> str | SafeString:
        if run.job_id is None:
            return "–"
        # The row is there if its status is not the one that was kept.
        gone = run.shown_status is None or bool(run.job_status)
        url = None if gone else self.link_or_none("change", run.job_id, model=Job)
        return format_html('<a href="{}">#{}</a>', url, run.job_id) if url else f"#{run.job_id}"

    @admin.display(description=gettext_lazy("finished at"))
    def ended(self, run: CronRun) -> Any:
        return run.finished_at

    @admin.display(description=gettext_lazy("fired by"))
    def worker(self, run: CronRun) -> str | SafeString:
        if run.fired_by is None:
            return "–"
        found = Worker.objects.using(run._state.db).filter(pk=run.fired_by).first()
        if found is None:
            return str(run.fired_by)
        url = self.link_or_none("change", found.pk, model=Worker)
        return format_html('<a href="{}">{}</a>', url, found) if url else str(found)
