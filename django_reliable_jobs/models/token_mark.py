"""How far the sequence of fencing tokens has come, beside the sequence itself."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models.managers import JobsManager


class TokenMark(models.Model):
    """One row. A sequence is not part of a data-only restore, nor of logical replication; this row is, and tells that
    the sequence has fallen behind the tokens that were given out."""

    id = models.SmallIntegerField(_("id"), primary_key=True, default=1)
    token = models.BigIntegerField(_("fencing token"), default=0)

    objects: ClassVar[models.Manager[TokenMark]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("token mark")
        verbose_name_plural = _("token marks")

    def __str__(self) -> str:
        return str(self.token)
