"""Jobs: the list, and where its pages are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import SEARCH_VAR
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import template_localtime  # type: ignore[attr-defined]
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.admin.actions import VERBS, Verb
from django_reliable_jobs.admin.base import OperationsAdmin, act, manages
from django_reliable_jobs.admin.display import badge, reason
from django_reliable_jobs.admin.jobs import act as jobs_act
from django_reliable_jobs.admin.jobs import detail as jobs_detail
from django_reliable_jobs.admin.jobs import filters as jobs_filters
from django_reliable_jobs.admin.jobs import paths as jobs_paths
from django_reliable_jobs.admin.paging import SEARCHED, WINDOW, Path
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.models import Job, JobStatus, Worker

TIME = '<span class="job-time">{}</span>'
#: Large, and not in the list.
DEFERRED = ("args", "kwargs", "result", "progress")
#: Columns that an address may filter by; the arguments are not among them, which could be asked letter by letter.
OPEN = {"id", "pk", "name", "queue", "status", "reason", "priority", "run_at", "attempts", "losses", "locked_by",
        "created_at", "started_at", "finished_at", "scheduled_for"}  # fmt: skip


def filters_of(params: QueryDict) -> str:
    """The filters of a list as a query string, without its page."""
    kept = params.copy()
    for name in ("p", "from", "o", "all", "e"):
        kept.pop(name, None)
    return kept.urlencode()


def _chosen(verb: Verb) -> Callable[..., HttpResponseBase]:
    """An entry of the list's menu: leads to the page of confirmation."""

    @admin.action(permissions=[verb.permission], description=verb.label)  # type: ignore[arg-type]
    def action(model_admin: JobAdmin, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponseBase:
        asked = QueryDict(mutable=True)
        asked["verb"] = verb.name
        if request.POST.get("select_across") == "1":
            asked["filters"] = filters_of(request.GET)
        else:
            asked["ids"] = ",".join(request.POST.getlist(ACTION_CHECKBOX_NAME))
            asked["list"] = filters_of(request.GET)
        return HttpResponseRedirect(f"{model_admin.link('act')}?{asked.urlencode()}")

    action.__name__ = verb.name
    return action


@manages(Job)
class JobAdmin(OperationsAdmin):
    list_display = ("job", "state", "queue", "tries", "moment", "worker")
    list_filter = (*jobs_filters.FILTERS,)
    served_filters = frozenset(("status", "status__exact", "schedule", "attempts"))
    change_list_template = "admin/django_reliable_jobs/job/change_list.html"
    actions = tuple(_chosen(verb) for verb in VERBS.values())
    search_fields = ("id",)
    search_note = _(
        "An id or a key; or else a piece of the arguments (arg:… looks for it in the arguments only), in the rows that the"
        " list looks at."
    )

    # The list

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer(*DEFERRED)

    def window_path(self, request: HttpRequest) -> Path:
        params, jobs = request.GET, super().get_queryset(request)
        if hits := self._exact(request, params.get(SEARCH_VAR, "")):
            return Path(("-pk",), Q(pk__in=hits))
        if schedule := params.get(jobs_filters.ScheduleFilter.parameter_name):
            return jobs_paths.of_schedule(schedule.replace("\0", ""), jobs)
        queue = jobs_paths.queue_of(params)
        if params.get(jobs_filters.AttemptFilter.parameter_name) == jobs_filters.FAILED_LATELY:
            return jobs_paths.of_failures(jobs, queue)
        status = jobs_paths.status_of(params)
        if status is None:
            return jobs_paths.NEWEST_FIRST
        since = jobs_filters.begin(params.get(jobs_filters.TimeFilter.parameter_name))
        return jobs_paths.by_status(status, since, queue)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.replace("\0", "").strip()
        match = request.resolver_match
        if match is not None and match.url_name == "autocomplete":
            return self._choices(request, queryset, term).order_by("-pk"), False
        if term and not self._exact(request, term):
            queryset = jobs_paths.in_text(term, queryset)
        return queryset, False

    def _choices(self, request: HttpRequest, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        """What the field of a foreign key offers. A list has its window; this looks at so many of the newest jobs."""
        if not term:
            return jobs_paths.newest(queryset, WINDOW)
        if hits := self._exact(request, term):
            return queryset.filter(pk__in=hits)
        lately = jobs_paths.newest(queryset, SEARCHED)
        named = [name for name in registry.names() if term.lower() in name.lower()]
        return lately.filter(name__in=named) if named else jobs_paths.in_text(term, lately)

    def _exact(self, request: HttpRequest, text: str) -> list[int]:
        """What the term names; found once a request."""
        term = text.replace("\0", "").strip()
        known: tuple[str, list[int]] = getattr(request, "_reliable_jobs_exact", ("", []))
        if term != known[0]:
            known = term, jobs_paths.exact(term, super().get_queryset(request)) if term else []
            request._reliable_jobs_exact = known  # type: ignore[attr-defined]
        return known[1]

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        name = lookup.partition("__")[0]
        return name in OPEN or any(name == choice.parameter_name for choice in jobs_filters.FILTERS)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changes = super().get_changelist_instance(request)
        # Only for the rows of the page: a count does not ask for them.
        worker = Worker.objects.using(changes.result_list.db).filter(pk=OuterRef("locked_by"))
        changes.result_list = changes.result_list.annotate(
            worker_host=Subquery(worker.values("host")[:1]), worker_pid=Subquery(worker.values("pid")[:1])
        )
        return changes

    @admin.display(description=_("job"))
    def job(self, job: Job) -> str:
        return str(job)

    @admin.display(description=_("status"))
    def state(self, job: Job) -> SafeString:
        if job.status == JobStatus.RUNNING and job.cancel_requested_at:
            return format_html("{} {}", badge(job.status), gettext("asked to stop"))
        return format_html("{} {}", badge(job.status), reason(job.reason)) if job.reason else badge(job.status)

    @admin.display(description=_("attempts"))
    def tries(self, job: Job) -> str:
        return f"{job.attempts}/{'∞' if job.max_attempts is None else job.max_attempts}"

    @admin.display(description=_("when"))
    def moment(self, job: Job) -> str:
        said = {
            JobStatus.QUEUED: (gettext("due {}"), job.run_at),
            JobStatus.FAILED: (gettext("again {}"), job.run_at),
            JobStatus.RUNNING: (gettext("since {}"), job.started_at),
        }
        text, when = said.get(JobStatus(job.status), (gettext("ended {}"), job.finished_at))
        if when is None:
            return ""
        return format_html(text, format_html(TIME, date_format(template_localtime(when), "Y-m-d H:i:s")))

    @admin.display(description=_("worker"))
    def worker(self, job: Any) -> str:
        if job.locked_by is None:
            return ""
        return f"{job.worker_host}:{job.worker_pid}" if job.worker_host else str(job.locked_by)[:8]

    # Acting

    def verbs(self, request: HttpRequest) -> list[Verb]:
        """Those that the user may."""
        return [verb for verb in VERBS.values() if self.allows(request, verb.permission)]

    # As `@admin.action` asks for the permissions of its verb.

    def has_retry_job_permission(self, request: HttpRequest) -> bool:
        return self.allows(request, "retry_job")

    def has_cancel_job_permission(self, request: HttpRequest) -> bool:
        return self.allows(request, "cancel_job")

    def has_change_job_permission(self, request: HttpRequest) -> bool:
        return self.allows(request, "change_job")

    def has_delete_job_permission(self, request: HttpRequest) -> bool:
        return self.allows(request, "delete_job")

    def get_urls(self) -> list[Any]:
        return [self.act_url("act", self.act_view, "act/"), *super().get_urls()]

    @act(methods=("GET", "POST"))
    def act_view(self, request: HttpRequest) -> HttpResponseBase:
        return jobs_act.view(self, request)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        everything = {"verbs": self.verbs(request), "act_url": self.link("act"), "filters": filters_of(request.GET)}
        return super().changelist_view(request, everything | (extra_context or {}))

    # One job

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None) -> Any:
        if not self.has_view_permission(request) or request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        return jobs_detail.view(self, request, object_id)
