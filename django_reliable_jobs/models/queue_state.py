"""Queues that somebody paused."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models.fields import MomentField
from django_reliable_jobs.models.managers import JobsManager


class QueueState(models.Model):
    """One row for each queue that has ever been paused. Every claim asks it."""

    queue = models.CharField(_("queue"), max_length=100, primary_key=True)
    paused = models.BooleanField(_("paused"), default=False)
    changed_at = MomentField(_("changed at"))

    objects: ClassVar[models.Manager[QueueState]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        permissions = [("pause_queue", "Can pause and resume queues")]

    def __str__(self) -> str:
        return self.queue
