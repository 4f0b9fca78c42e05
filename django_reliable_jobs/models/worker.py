"""Who is at work."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models.fields import MomentField, PayloadField
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
    #: What its operator calls this deployment (the setting RELEASE).
    release = models.CharField(_("release"), max_length=100, blank=True, default="", db_default="")
    #: Which job names it knows: the key of a `KnownNames` row.
    names_digest = models.CharField(_("digest of known names"), max_length=64, blank=True, default="", db_default="")
    #: Why it cannot work, in words for people; empty while it can.
    problem = models.TextField(_("problem"), blank=True, default="", db_default="")
    started_at = MomentField(_("started at"))
    last_seen = MomentField(_("last seen"))

    objects: ClassVar[models.Manager[Worker]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class KnownNames(models.Model):
    """The job names that workers of one version of the code know, once for all of them (protocol 28)."""

    digest = models.CharField(_("digest"), max_length=64, primary_key=True)
    names = PayloadField(_("names"), default=list)
    seen_at = MomentField(_("seen at"))

    objects: ClassVar[models.Manager[KnownNames]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("known names")
        verbose_name_plural = _("known names")

    def __str__(self) -> str:
        return self.digest[:12]


class UnknownName(models.Model):
    """A job name that a worker has met in a row and that no living worker knew then (protocol 28)."""

    name = models.CharField(_("name"), max_length=200, primary_key=True)
    met_at = MomentField(_("first met at"))

    objects: ClassVar[models.Manager[UnknownName]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("unknown job name")
        verbose_name_plural = _("unknown job names")

    def __str__(self) -> str:
        return self.name
