"""What can be done to any schedule: pause, resume, run now, backfill. All of it needs the permission `run_schedule`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs import conf
from django_reliable_jobs.admin.base import OperationsAdmin, act
from django_reliable_jobs.admin.schedules.backfill import backfill_page
from django_reliable_jobs.admin.schedules.form import PREVIEW
from django_reliable_jobs.admin.schedules.preview import Preview, preview
from django_reliable_jobs.admin.schedules.widgets import MomentField, aware
from django_reliable_jobs.control import schedules as control_schedules
from django_reliable_jobs.errors import ReliableJobsError
from django_reliable_jobs.models import CronSchedule
from django_reliable_jobs.store.schedules import due as schedule_due


class ScheduleVerb(NamedTuple):
    """`logged` goes into the log, `done` and `not_done` (with `name`) to the person; `run` says whether it did anything."""

    run: Callable[..., Any]
    logged: Promise
    done: Promise
    not_done: Promise = _("Nothing to do for the schedule %(name)s.")


VERBS = {
    "pause": ScheduleVerb(
        control_schedules.pause_schedule,
        _("Paused."),
        _("The schedule %(name)s is paused."),
        _("The schedule %(name)s was paused already."),
    ),
    "resume": ScheduleVerb(
        control_schedules.resume_schedule,
        _("Resumed."),
        _("The schedule %(name)s fires again, from its next time on."),
        _("The schedule %(name)s was not paused."),
    ),
    "run": ScheduleVerb(
        control_schedules.run_schedule,
        _("Run now: job %(job)s."),
        _("The schedule %(name)s has enqueued job %(job)s."),
    ),
}


class PreviewForm(forms.Form):
    """The fields of a schedule that its preview depends on."""

    starts_at = MomentField(label="", required=False)
    ends_at = MomentField(label="", required=False)


class ScheduleActs(OperationsAdmin):
    """The views and actions."""

    def get_urls(self) -> list[Any]:
        return [
            self.act_url("preview", self.preview_view, "preview/"),
            self.act_url("pause", self.pause_view, "<int:pk>/pause/"),
            self.act_url("resume", self.resume_view, "<int:pk>/resume/"),
            self.act_url("run", self.run_view, "<int:pk>/run/"),
            self.act_url("backfill", self.backfill_view, "<int:pk>/backfill/"),
            *super().get_urls(),
        ]

    def has_run_schedule_permission(self, request: HttpRequest) -> bool:
        return self.allows(request, "run_schedule")

    @act("run_schedule")
    def pause_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        return self._one(request, pk, "pause")

    @act("run_schedule")
    def resume_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        return self._one(request, pk, "resume")

    @act("run_schedule")
    def run_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        return self._one(request, pk, "run")

    @act("run_schedule", methods=("GET", "POST"))
    def backfill_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        return backfill_page(self, request, self.found(request, pk))

    @admin.action(description=_("Pause the selected schedules"), permissions=["run_schedule"])
    def pause_selected(self, request: HttpRequest, queryset: QuerySet[CronSchedule]) -> None:
        self.do(request, queryset, "pause")

    @admin.action(description=_("Resume the selected schedules"), permissions=["run_schedule"])
    def resume_selected(self, request: HttpRequest, queryset: QuerySet[CronSchedule]) -> None:
        self.do(request, queryset, "resume")

    @admin.action(description=_("Run the selected schedules now"), permissions=["run_schedule"])
    def run_selected(self, request: HttpRequest, queryset: QuerySet[CronSchedule]) -> None:
        self.do(request, queryset, "run")

    def do(self, request: HttpRequest, schedules: Iterable[CronSchedule], name: str) -> None:
        """The verb for each schedule by itself; what cannot be done is said, with the reason."""
        verb = VERBS[name]
        for schedule in schedules:
            try:
                result = verb.run(schedule.name, using=conf.current().database)
            except (ReliableJobsError, ValueError, OverflowError) as error:
                self.message_user(request, str(error), messages.ERROR)
                continue
            values = {"name": schedule.name, "job": result}
            if result:
                self.log(request, [schedule], str(verb.logged) % values)
                self.message_user(request, verb.done % values, messages.SUCCESS)
            else:
                self.message_user(request, verb.not_done % values, messages.INFO)

    def found(self, request: HttpRequest, pk: int) -> CronSchedule:
        schedule = self.get_queryset(request).filter(pk=pk).first()
        if schedule is None:
            raise Http404
        found: CronSchedule = schedule
        return found

    def _one(self, request: HttpRequest, pk: int, name: str) -> HttpResponse:
        self.do(request, [self.found(request, pk)], name)
        return HttpResponseRedirect(self.link("change", pk))

    # The preview

    def preview_view(self, request: HttpRequest) -> HttpResponse:
        """A part of a page: the next fire times of the expression in the address."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        moments = PreviewForm(request.GET)
        moments.is_valid()
        found = self.preview_of(
            request.GET.get("expression", ""), request.GET.get("timezone", ""), moments.cleaned_data
        )
        template = "admin/django_reliable_jobs/cronschedule/preview.html"
        return render(request, template, {"preview": found})

    def preview_of(self, expression: str, timezone: str, moments: dict[str, Any]) -> Preview:
        now = schedule_due.now(conf.current().database)
        first, last = aware(moments.get("starts_at")), aware(moments.get("ends_at"))
        return preview(expression[:500], timezone[:64], now, first, last)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """With the preview of what stands in the form, saved or not, and with what the user may do."""
        form, schedule = context["adminform"].form, kwargs.get("obj")
        values: dict[str, Any] = vars(schedule) if schedule is not None else {"expression": "", "timezone": "UTC"}
        if form.is_bound:
            values = {name: form.data.get(name, "") for name in ("expression", "timezone")}
            values |= {name: getattr(form, "cleaned_data", {}).get(name) for name in ("starts_at", "ends_at")}
        context |= {
            "preview": self.preview_of(values["expression"], values["timezone"], values),
            "preview_url": self.link("preview"),
            "preview_name": PREVIEW,
            "may_run": schedule is not None and self.has_run_schedule_permission(request),
            "schedule": schedule,
        }
        answer: HttpResponse = super().render_change_form(request, context, *args, **kwargs)
        return answer

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Its runs stay, and nothing else belongs to it: nobody has to look for related rows."""
        perms = {str(self.opts.verbose_name) for each in objs if not self.has_delete_permission(request, each)}
        return [str(each) for each in objs], {str(self.opts.verbose_name_plural): len(objs)}, perms, []
