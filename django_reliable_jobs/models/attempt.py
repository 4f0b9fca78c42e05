"""What is kept of an attempt that did not end well."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models.fields import MomentField
from django_reliable_jobs.models.job import Job
from django_reliable_jobs.models.managers import JobsManager
from django_reliable_jobs.values.states import JobStatus


class JobAttempt(models.Model):
    """A failed, lost or cancelled attempt, with its error. A job that goes well leaves none.

    `status` is what the job became by it. Unique by (job, fencing_token): attempt numbers repeat after a snooze or an
    operator's retry.
    """

    id = models.BigAutoField(primary_key=True)
    # No index of its own: the unique constraint begins with it.
    job = models.ForeignKey(
        Job, on_delete=models.CASCADE, related_name="attempt_set", db_index=False, verbose_name=_("job")
    )
    fencing_token = models.BigIntegerField(_("fencing token"))
    attempt = models.IntegerField(_("attempt"))
    status = models.CharField(_("status"), max_length=10, choices=JobStatus.choices)
    reason = models.CharField(_("reason"), max_length=100, blank=True, default="")
    worker = models.UUIDField(_("worker"), null=True, blank=True)
    started_at = MomentField(_("started at"), null=True, blank=True)
    finished_at = MomentField(_("finished at"))
    error_kind = models.CharField(_("error class"), max_length=300, blank=True, default="")
    error_message = models.TextField(_("error"), blank=True, default="")
    traceback = models.TextField(_("traceback"), blank=True, default="")

    objects: ClassVar[models.Manager[JobAttempt]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        constraints = [
            models.UniqueConstraint(fields=["job", "fencing_token"], name="reliable_jobs_attempt_unique"),
        ]

    def __str__(self) -> str:
        return f"attempt {self.attempt} of job {self.job_id}"
