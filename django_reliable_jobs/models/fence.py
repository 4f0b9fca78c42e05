"""The newest owner that each fence has seen."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models.fields import MomentField
from django_reliable_jobs.models.managers import JobsManager


class Fence(models.Model):
    """One row for each fence name; its lock is what `fencing.fence` holds until the commit.

    Rows are never pruned: without its row a fence would let an old owner pass again.
    """

    name = models.CharField(_("name"), max_length=255, primary_key=True)
    fencing_token = models.BigIntegerField(_("fencing token"))
    passed_at = MomentField(_("passed at"))

    objects: ClassVar[models.Manager[Fence]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("fence")
        verbose_name_plural = _("fences")

    def __str__(self) -> str:
        return self.name
