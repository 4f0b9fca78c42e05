"""Schedules: a list, a form for those that people own, and what can be done to all of them.

Everything is a verb of `control.schedules`; the rows are never saved from here.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin import SimpleListFilter
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_reliable_jobs import conf
from django_reliable_jobs.admin.base import manages
from django_reliable_jobs.admin.display import badge, pretty
from django_reliable_jobs.admin.overview.words import moment, short_moment
from django_reliable_jobs.admin.paging import Path
from django_reliable_jobs.admin.schedules.acts import ScheduleActs
from django_reliable_jobs.admin.schedules.form import ScheduleForm
from django_reliable_jobs.control import schedules as control_schedules
from django_reliable_jobs.definitions import redaction, registry
from django_reliable_jobs.definitions import schedule as schedule_definitions
from django_reliable_jobs.errors import ReliableJobsError, UnknownJob
from django_reliable_jobs.models import CronRun, CronSchedule
from django_reliable_jobs.schedules import RULES

_WHAT = ("job_name", "args", "kwargs", "seen_version")
_WHEN = ("expression", "timezone", "starts_at", "ends_at")
_RULES = (*(rule for rule in RULES if rule not in _WHEN), "pause_after_failures")
_STATE = ("state", "next_run", "fired", "owner")


class StateFilter(SimpleListFilter):
    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("active", gettext_lazy("active")),
            ("paused", gettext_lazy("paused")),
            ("broken", gettext_lazy("broken")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[CronSchedule]) -> QuerySet[CronSchedule]:
        if self.value() == "broken":
            return queryset.exclude(broken="")
        if self.value() in ("active", "paused"):
            return queryset.filter(broken="", paused=self.value() == "paused")
        return queryset


class OwnerFilter(SimpleListFilter):
    title = gettext_lazy("owner")
    parameter_name = "owner"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("code", gettext_lazy("code")), ("people", gettext_lazy("people"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[CronSchedule]) -> QuerySet[CronSchedule]:
        if self.value() == "people":
            return queryset.filter(source="")
        return queryset.exclude(source="") if self.value() == "code" else queryset


@manages(CronSchedule)
class CronScheduleAdmin(ScheduleActs):
    """People's own schedules are made, changed and deleted with the model's permissions; the rest is `run_schedule`."""

    class Media:
        css = {"all": ["django_reliable_jobs/schedule.css"]}

    form = ScheduleForm
    change_form_template = "admin/django_reliable_jobs/cronschedule/change_form.html"
    list_display = ("name", "state", "when", "next_run", "last_run", "job_name", "owner")
    list_filter = (StateFilter, OwnerFilter)
    search_fields = ("name", "job_name")
    actions: Any = ("pause_selected", "resume_selected", "run_selected")

    def window_path(self, request: HttpRequest) -> Path:
        return Path(("name", "pk"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[CronSchedule]:
        found = super().get_queryset(request)
        runs = CronRun.objects.using(found.db).with_job()  # type: ignore[attr-defined]
        runs = runs.filter(name=OuterRef("name")).order_by("-scheduled_for")
        annotated: QuerySet[CronSchedule] = found.annotate(
            last_for=Subquery(runs.values("scheduled_for")[:1]),
            last_outcome=Subquery(runs.values("outcome")[:1]),
            last_status=Subquery(runs.values("shown_status")[:1]),
        )
        return annotated

    # Permissions

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.allows(request, "add_cronschedule")

    def has_change_permission(self, request: HttpRequest, obj: CronSchedule | None = None) -> bool:
        return self.allows(request, "change_cronschedule") and (obj is None or not obj.source)

    def has_delete_permission(self, request: HttpRequest, obj: CronSchedule | None = None) -> bool:
        if obj is not None and schedule_definitions.app_of(obj.source) in {
            config.label for config in apps.get_app_configs()
        }:
            return False
        return self.allows(request, "delete_cronschedule")

    # The form

    def get_fieldsets(self, request: HttpRequest, obj: CronSchedule | None = None) -> Any:
        if obj is None:
            return [
                (None, {"fields": ("name", *_WHAT)}),
                (gettext_lazy("When"), {"fields": _WHEN}),
                (gettext_lazy("Rules"), {"fields": _RULES, "classes": ("collapse",)}),
            ]
        what: tuple[str, ...] = _WHAT
        if not self.has_change_permission(request, obj):
            what = ("job_name", "shown_arguments")
        return [
            (None, {"fields": ("name", "broken", *_STATE) if obj.broken else ("name", *_STATE)}),
            (gettext_lazy("What"), {"fields": what}),
            (gettext_lazy("When"), {"fields": _WHEN}),
            (gettext_lazy("Rules"), {"fields": _RULES, "classes": ("collapse",)}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: CronSchedule | None = None) -> tuple[str, ...]:
        return () if obj is None else ("name", "broken", *_STATE, "shown_arguments")

    def save_model(self, request: HttpRequest, obj: CronSchedule, form: Any, change: bool) -> None:
        data = form.cleaned_data
        args, kwargs = form.arguments()
        saved = control_schedules.save_schedule(
            obj.name,
            data["job_name"],
            data["expression"],
            timezone=data["timezone"],
            args=args,
            kwargs=kwargs,
            pause_after_failures=data["pause_after_failures"],
            using=conf.current().database,
            **{name: data[name] for name in RULES},
        )
        obj.__dict__.update(saved.__dict__)

    def delete_model(self, request: HttpRequest, obj: CronSchedule) -> None:
        control_schedules.delete_schedule(obj.name, using=conf.current().database)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[CronSchedule]) -> None:
        for name in queryset.values_list("name", flat=True):
            control_schedules.delete_schedule(name, using=conf.current().database)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._or_told(request, super().changeform_view, *args, **kwargs)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._or_told(request, super().delete_view, *args, **kwargs)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._or_told(request, super().changelist_view, *args, **kwargs)

    def _or_told(self, request: HttpRequest, view: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        """What has changed between the look and the write is said, and is never an error page."""
        try:
            answer: HttpResponse = view(request, *args, **kwargs)
        except ReliableJobsError as error:
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        return answer

    # What is shown

    @admin.display(description=gettext_lazy("state"))
    def state(self, schedule: CronSchedule) -> str:
        if schedule.broken:
            return badge("DEAD", _("broken"))
        return badge("CANCELLED", _("paused")) if schedule.paused else _("active")

    @admin.display(description=gettext_lazy("when"))
    def when(self, schedule: CronSchedule) -> SafeString:
        return format_html("<code>{}</code><br>{}", schedule.expression, schedule.timezone)

    @admin.display(description=gettext_lazy("next run"))
    def next_run(self, schedule: CronSchedule) -> str:
        waits = schedule.next_fire_at is not None and not schedule.paused and not schedule.broken
        return short_moment(schedule.next_fire_at) if waits and schedule.next_fire_at else "–"

    @admin.display(description=gettext_lazy("owner"))
    def owner(self, schedule: CronSchedule) -> str:
        return _("code of %(app)s") % {"app": schedule.source} if schedule.source else _("people")

    @admin.display(description=gettext_lazy("fired through"))
    def fired(self, schedule: CronSchedule) -> str:
        waits = schedule.waiting_for
        said = _("%(moment)s waits for the run before") % {"moment": moment(waits)} if waits else ""
        return f"{moment(schedule.fired_through)} {said}".strip()

    @admin.display(description=gettext_lazy("last run"))
    def last_run(self, schedule: Any) -> str | SafeString:
        if schedule.last_for is None:
            return "–"
        status = schedule.last_status
        said = badge(status) if status else CronRun.Outcome(schedule.last_outcome).label
        return format_html("{} {}", short_moment(schedule.last_for), said)

    @admin.display(description=gettext_lazy("arguments"))
    def shown_arguments(self, schedule: CronSchedule) -> str:
        try:
            definition = registry.find(schedule.job_name)
        except UnknownJob:
            definition = None
        if not isinstance(schedule.args, list) or not isinstance(schedule.kwargs, dict):  # written by hand
            return "" if definition is None or definition.redact else pretty([schedule.args, schedule.kwargs])
        args, kwargs = redaction.hide(definition, schedule.args, schedule.kwargs)
        return pretty({"args": args, "kwargs": kwargs})
