"""Backfill: a range of past time, the number of its fire times, a confirmation."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_reliable_jobs import conf
from django_reliable_jobs.admin.schedules.widgets import MomentField, aware, shown
from django_reliable_jobs.control import schedules as control_schedules
from django_reliable_jobs.errors import ReliableJobsError
from django_reliable_jobs.firing.by_hand import MAX_BACKFILL
from django_reliable_jobs.models import CronSchedule
from django_reliable_jobs.schedules import FiringRules, as_timetable, fires
from django_reliable_jobs.store.schedules import due as schedule_due
from django_reliable_jobs.store.schedules import skipped as skipped_runs

if TYPE_CHECKING:
    from django_reliable_jobs.admin.schedules.acts import ScheduleActs

#: The button that does it; its value is the number of jobs that the person has read.
CONFIRM = "_confirm"


class BackfillForm(forms.Form):
    """A range in the past. After `is_valid`, `times` and `missing` count its fire times and those without a job."""

    start = MomentField(label=gettext_lazy("After"))
    end = MomentField(label=gettext_lazy("Up to"))

    def __init__(self, schedule: CronSchedule, now: datetime, data: Any = None) -> None:
        self.schedule, self.now = schedule, now
        self.times = self.missing = 0
        end = shown(now.replace(microsecond=0))
        first = {"start": end - timedelta(days=1), "end": end}
        super().__init__(data, initial=first)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if "start" not in data or "end" not in data:
            return data
        if data["end"] > self.now:
            self.add_error("end", _("This is in the future: the schedule itself will fire then."))
        elif data["end"] <= data["start"]:
            self.add_error("end", _("The end is not later than the start."))
        else:
            self._count(data["start"], data["end"])
        return data

    def _count(self, start: datetime, end: datetime) -> None:
        schedule = self.schedule
        try:
            timetable = as_timetable(schedule.expression, schedule.timezone)
            rules = FiringRules(starts_at=aware(schedule.starts_at), ends_at=aware(schedule.ends_at))
            first, last = rules.interval(start, end)
            self.times = timetable.count(first, last) if first < last else 0
        except (ValueError, OverflowError) as error:  # ScheduleError among them
            self.add_error(None, str(error))
            return
        if self.times > MAX_BACKFILL:
            text = _("These are %(count)s fire times; one backfill takes at most %(most)s. Choose a shorter range.")
            self.add_error("end", text % {"count": f"{self.times:,}", "most": f"{MAX_BACKFILL:,}"})
            return
        made = skipped_runs.with_a_job(conf.current().database, schedule.name, start, end)
        self.missing = sum(moment not in made for moment in fires(timetable, rules, start, end))


def backfill_page(admin: ScheduleActs, request: HttpRequest, schedule: CronSchedule) -> HttpResponse:
    """GET: the range. POST: how many fire times that is, and with the confirmation the jobs."""
    now = schedule_due.now(conf.current().database)
    form = BackfillForm(schedule, now, request.POST) if request.method == "POST" else BackfillForm(schedule, now)
    asked = form.is_bound and form.is_valid()
    confirmed = request.POST.get(CONFIRM)
    if asked and confirmed is not None and confirmed != str(form.missing):
        admin.message_user(request, _("These are others than before: confirm their number again."), messages.WARNING)
    elif asked and confirmed is not None:
        start, end = form.cleaned_data["start"], form.cleaned_data["end"]
        try:
            made = control_schedules.backfill(schedule.name, start, end, using=conf.current().database)
        except (ReliableJobsError, ValueError, OverflowError) as error:
            form.add_error(None, str(error))
            asked = False
        else:
            values = {"name": schedule.name, "count": len(made), "start": start, "end": end}
            admin.log(request, [schedule], _("Backfilled from %(start)s to %(end)s: %(count)d jobs.") % values)
            text = ngettext(
                "The schedule %(name)s: %(count)d job is enqueued.",
                "The schedule %(name)s: %(count)d jobs are enqueued.",
                len(made),
            )
            admin.message_user(request, text % values, messages.SUCCESS)
            return HttpResponseRedirect(admin.link("change", schedule.pk))
    return admin.page(
        request,
        "cronschedule/backfill.html",
        _("Backfill"),
        subtitle=schedule.name,
        form=form,
        schedule=schedule,
        asked=asked,
        confirm=CONFIRM,
        media=admin.media + form.media,
    )
