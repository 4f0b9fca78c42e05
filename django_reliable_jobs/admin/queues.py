"""Queues that somebody paused, with pause and resume; the overview hangs here too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_reliable_jobs import conf, control
from django_reliable_jobs.admin.base import act, manages
from django_reliable_jobs.admin.display import badge
from django_reliable_jobs.admin.overview.page import PAGE, OverviewAdmin
from django_reliable_jobs.admin.paging import Path
from django_reliable_jobs.models import QueueState


class Texts(NamedTuple):
    """What is said about a verb: in the log, to the person, and to one who came too late."""

    log: Promise
    done: Promise
    before: Promise


PAUSING = Texts(
    gettext_lazy("Paused."),
    gettext_lazy("The queue %(queue)s is paused: nothing is claimed from it. What runs goes on."),
    gettext_lazy("The queue %(queue)s was paused already."),
)
RESUMING = Texts(
    gettext_lazy("Resumed."),
    gettext_lazy("The queue %(queue)s goes on."),
    gettext_lazy("The queue %(queue)s was not paused."),
)


@manages(QueueState)
class QueueStateAdmin(OverviewAdmin):
    """Read-only but for pause and resume, which need the permission `pause_queue`."""

    list_display = ("queue", "state", "changed_at")
    search_fields = ("queue",)
    actions: Any = ("pause_selected", "resume_selected")
    fields = ("queue", "state", "changed_at")
    readonly_fields = fields
    window_note = gettext_lazy("A queue stands here once somebody has paused it; the overview shows all of them.")

    def window_path(self, request: HttpRequest) -> Path:
        return Path(("queue",))

    def get_urls(self) -> list[Any]:
        return [
            *self.overview_urls(),
            self.act_url("pause", self.pause_view, "pause/"),
            self.act_url("resume", self.resume_view, "resume/"),
            *super().get_urls(),
        ]

    def has_pause_queue_permission(self, request: HttpRequest) -> bool:
        return self.allows(request, "pause_queue")

    @act("pause_queue")
    def pause_view(self, request: HttpRequest) -> HttpResponse:
        return self._from_overview(request, control.pause_queue)

    @act("pause_queue")
    def resume_view(self, request: HttpRequest) -> HttpResponse:
        return self._from_overview(request, control.resume_queue)

    @admin.action(description=gettext_lazy("Pause the selected queues"), permissions=["pause_queue"])
    def pause_selected(self, request: HttpRequest, queryset: QuerySet[QueueState]) -> None:
        self._change(request, list(queryset.values_list("queue", flat=True)), control.pause_queue)

    @admin.action(description=gettext_lazy("Resume the selected queues"), permissions=["pause_queue"])
    def resume_selected(self, request: HttpRequest, queryset: QuerySet[QueueState]) -> None:
        self._change(request, list(queryset.values_list("queue", flat=True)), control.resume_queue)

    @admin.display(description=gettext_lazy("state"))
    def state(self, queue: QueueState) -> str:
        return badge("CANCELLED", _("paused")) if queue.paused else _("claimed from")

    def _from_overview(self, request: HttpRequest, verb: Callable[..., bool]) -> HttpResponse:
        self._change(request, [request.POST.get("queue", "")], verb)
        page = "admin:" + (PAGE if request.POST.get("back") != "list" else "django_reliable_jobs_queuestate_changelist")
        return HttpResponseRedirect(reverse(page, current_app=self.admin_site.name))

    def _change(self, request: HttpRequest, queues: list[str], verb: Callable[..., bool]) -> None:
        texts = PAUSING if verb is control.pause_queue else RESUMING
        for queue in queues:
            try:
                changed = verb(queue, using=conf.current().database)
            except ValueError:
                self.message_user(
                    request, _("%(queue)s is no name of a queue.") % {"queue": repr(queue)}, messages.ERROR
                )
                continue
            if changed:
                self.log(request, [QueueState(queue=queue)], texts.log)
                self.message_user(request, texts.done % {"queue": queue}, messages.SUCCESS)
            else:
                self.message_user(request, texts.before % {"queue": queue}, messages.INFO)
