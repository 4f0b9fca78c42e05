"""Workers: who is at work, and with which jobs. Read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Func, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_reliable_jobs import conf
from django_reliable_jobs.admin.base import OperationsAdmin, manages
from django_reliable_jobs.admin.display import badge
from django_reliable_jobs.admin.overview.words import span
from django_reliable_jobs.admin.paging import Path
from django_reliable_jobs.models import Job, JobStatus, Worker

#: Jobs that are listed of one worker.
MOST_JOBS = 200

_CLOCK = Func(function="statement_timestamp", output_field=DateTimeField())


@manages(Worker)
class WorkerAdmin(OperationsAdmin):
    list_display = ("worker", "state", "used", "seen", "queues", "version", "started_at")
    search_fields = ("host",)
    change_form_template = "admin/django_reliable_jobs/worker/change_form.html"
    fields = (
        "worker",
        "state",
        "problem",
        "used",
        "seen",
        "last_seen",
        "started_at",
        "queues",
        "version",
        "release",
        "id",
    )
    readonly_fields = fields
    window_note = gettext_lazy("A worker that has not been seen for an hour is forgotten.")

    def window_path(self, request: HttpRequest) -> Path:
        return Path(("host", "pk"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        unseen = ExpressionWrapper(_CLOCK - F("last_seen"), output_field=DurationField())
        workers: QuerySet[Any] = super().get_queryset(request).annotate(unseen=unseen)
        return workers

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        shown = self._jobs(request, object_id) if request.user.has_perm("django_reliable_jobs.view_job") else {}
        return super().change_view(request, object_id, form_url, shown | (extra_context or {}))

    def _jobs(self, request: HttpRequest, object_id: str) -> dict[str, Any]:
        worker = self.get_object(request, object_id)
        if worker is None:
            return {}
        jobs = Job.objects.using(conf.current().database).filter(status=JobStatus.RUNNING, locked_by=worker.pk)
        rows = list(jobs.order_by("started_at").only("name", "queue", "started_at", "attempts")[: MOST_JOBS + 1])
        return {
            "running": [(job, self.link_or_none("change", job.pk, model=Job)) for job in rows[:MOST_JOBS]],
            "more_running": len(rows) > MOST_JOBS,
        }

    @admin.display(description=gettext_lazy("worker"))
    def worker(self, worker: Worker) -> str:
        return str(worker)

    @admin.display(description=gettext_lazy("state"))
    def state(self, worker: Any) -> str:
        if worker.unseen.total_seconds() > conf.current().lease:
            return badge("DEAD", _("not seen"))
        if worker.problem:
            return badge("FAILED", _("has a problem"))
        return _("stopping") if worker.stopping else _("at work")

    @admin.display(description=gettext_lazy("slots"))
    def used(self, worker: Worker) -> str:
        return _("%(busy)d of %(slots)d busy") % {"busy": worker.busy, "slots": worker.slots}

    @admin.display(description=gettext_lazy("seen"))
    def seen(self, worker: Any) -> str:
        return _("%(span)s ago") % {"span": span(worker.unseen.total_seconds())}
