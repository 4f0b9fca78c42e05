"""Who is at work."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models.managers import JobsManager


class Worker(models.Model):
    """One process start of a worker, written with its heartbeat.

    For people and for prefetching only: whether a lease is alive is said by the job's `locked_until`, never by this
    row.
    """

    id = models.UUIDField(_("id"), primary_key=True)
    host = models.CharField(_("host"), max_length=255)
    pid = models.IntegerField(_("process id"))
    version = models.CharField(_("version"), max_length=50)
    queues = models.CharField(_("queues"), max_length=500, blank=True, default="")
    slots = models.IntegerField(_("slots"))
    busy = models.IntegerField(_("busy"), default=0)
    stopping = models.BooleanField(_("stopping"), default=False)
    started_at = models.DateTimeField(_("started at"))
    last_seen = models.DateTimeField(_("last seen"))

    objects: ClassVar[models.Manager[Worker]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"
