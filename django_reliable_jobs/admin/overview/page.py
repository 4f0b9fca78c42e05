"""The overview: one page that says what is wrong, with queues, workers and schedules beneath.

It is a plain page. With scripts it asks for its middle part every few seconds (`part`) and puts that in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.translation import gettext as _

from django_reliable_jobs import conf
from django_reliable_jobs.admin.base import APP, OperationsAdmin
from django_reliable_jobs.admin.charts import legend
from django_reliable_jobs.admin.jobs.filters import FAILED_LATELY
from django_reliable_jobs.admin.overview.problems import FORGOTTEN, problems
from django_reliable_jobs.admin.overview.rows import queue_row, schedule_row, worker_row
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.models import CronRun, CronSchedule, Job, QueueState, Worker
from django_reliable_jobs.operations.overview.figures import overview

#: The name of the page in the site's URLs: `admin:django_reliable_jobs_overview`.
PAGE, PART = f"{APP}_overview", f"{APP}_overview_part"
#: Milliseconds between two refreshes.
INTERVAL = 5000
#: Problems that are spelt out.
MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class SiteLinks:
    """Addresses on one admin site; empty for pages that it does not have or that the user may not see."""

    request: HttpRequest
    site_name: str

    def jobs(self, queue: str, status: str) -> str:
        wanted = {"queue": queue, "status": status} if status else {"queue": queue}
        return self._link(Job, "changelist", query=wanted)

    def failures(self, queue: str) -> str:
        return self._link(Job, "changelist", query={"attempts": FAILED_LATELY, "queue": queue})

    def worker(self, pk: object) -> str:
        return self._link(Worker, "change", pk)

    def schedule(self, pk: object) -> str:
        return self._link(CronSchedule, "change", pk)

    def run(self, pk: object) -> str:
        return self._link(CronRun, "change", pk)

    def runs(self, name: str) -> str:
        return self._link(CronRun, "changelist", query={"schedule": name})

    def _link(self, model: type[models.Model], page: str, *args: object, query: dict[str, str] | None = None) -> str:
        if not may_view(self.request, model):
            return ""
        try:
            url = reverse(f"admin:{APP}_{model._meta.model_name}_{page}", args=args, current_app=self.site_name)
        except NoReverseMatch:
            return ""
        return f"{url}?{urlencode(query)}" if query else url


def may_view(request: HttpRequest, model: type[models.Model]) -> bool:
    """Whether the user has the model's permission to view or change."""
    name = model._meta.model_name
    return request.user.has_perm(f"{APP}.view_{name}") or request.user.has_perm(f"{APP}.change_{name}")


class OverviewAdmin(OperationsAdmin):
    """The views. Whoever may see jobs or queues, workers, or schedules, sees that part of the page."""

    def overview_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("overview/", wrap(self.overview_page), name=PAGE),
            path("overview/part/", wrap(self.overview_part), name=PART),
        ]

    def overview_page(self, request: HttpRequest) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            **self._figures(request),
            "title": _("Overview"),
            "opts": self.opts,
            "app_label": APP,
            "interval": str(INTERVAL),
            "part_url": reverse(f"admin:{PART}", current_app=self.admin_site.name),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_reliable_jobs/overview.html", context)

    def overview_part(self, request: HttpRequest) -> HttpResponse:
        """The tables alone, for the page that is open."""
        request.current_app = self.admin_site.name
        return render(request, "admin/django_reliable_jobs/overview_part.html", self._figures(request))

    def _figures(self, request: HttpRequest) -> dict[str, Any]:
        shows = {
            "queues": may_view(request, QueueState) or may_view(request, Job),
            "workers": may_view(request, Worker),
            "schedules": may_view(request, CronSchedule),
        }
        if not any(shows.values()):
            raise PermissionDenied
        known = {definition.queue for definition in registry.all_definitions()} | set(conf.current().queues)
        found = overview(queues=known, workers=shows["workers"], schedules=shows["schedules"])
        links = SiteLinks(request, self.admin_site.name)
        if not shows["queues"]:
            found.queues.clear()
        recent = [worker for worker in found.workers if not worker.stale or worker.unseen < FORGOTTEN]
        wrong = problems(found, links, workers_known=shows["workers"])
        return {
            "found": found,
            "shows": shows,
            "problems": wrong[:MOST_PROBLEMS],
            "more_problems": len(wrong) - MOST_PROBLEMS,
            "queues": [queue_row(queue, found, links) for queue in found.queues],
            "workers": [worker_row(worker, links) for worker in recent],
            "old_workers": len(found.workers) - len(recent),
            "schedules": [schedule_row(schedule, found, links) for schedule in found.schedules],
            "legend": legend(),
            "bounded": any(queue.estimated for queue in found.queues),
            "may_pause": self.allows(request, "pause_queue"),
        }
