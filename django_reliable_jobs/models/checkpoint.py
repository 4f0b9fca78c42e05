"""How far a job has come, for its next attempt."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models.fields import MomentField, PayloadField
from django_reliable_jobs.models.job import Job
from django_reliable_jobs.models.managers import JobsManager


class JobCheckpoint(models.Model):
    """What `ctx.checkpoint(value)` saved last; a row of its own, so that saving it does not lock the job row.

    `fencing_token` is the latest attempt that loaded or saved it: an older one is refused.
    """

    job = models.OneToOneField(
        Job, on_delete=models.CASCADE, primary_key=True, related_name="checkpoint", verbose_name=_("job")
    )
    fencing_token = models.BigIntegerField(_("fencing token"))
    version = models.IntegerField(_("version"), default=0)
    value = PayloadField(_("value"), null=True, blank=True)
    updated_at = MomentField(_("updated at"))

    objects: ClassVar[models.Manager[JobCheckpoint]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("checkpoint")
        verbose_name_plural = _("checkpoints")

    def __str__(self) -> str:
        return f"checkpoint {self.version} of job {self.job_id}"
