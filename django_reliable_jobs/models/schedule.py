"""Schedules, what became of each of their fire times, and which version of the code they are from."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from django.db import models
from django.db.models import F, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce, NullIf
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models.fields import MomentField, PayloadField
from django_reliable_jobs.models.job import Job
from django_reliable_jobs.models.managers import JobsManager
from django_reliable_jobs.schedules import Misfire, Overlap
from django_reliable_jobs.values.states import JobStatus


class CronSchedule(models.Model):
    """One schedule. Those in code are synced by the workers; people can only pause them and run them now.

    `fired_through` is the last fire time that was dealt with; it only rises. `version` rises with every change of the
    definition: a fire that was computed from an older one does nothing. `next_fire_at` is when a worker looks at it next:
    its next fire time, or sooner while one waits; NULL when there is none. `waiting_for` is a fire time that waits for
    the job of an earlier one (overlap `queue`).
    """

    name = models.CharField(_("name"), max_length=200, unique=True)
    job_name = models.CharField(_("job"), max_length=200)
    expression = models.CharField(_("expression"), max_length=500)
    timezone = models.CharField(_("time zone"), max_length=64, default="UTC")
    args = PayloadField(_("positional arguments"), default=list, blank=True)
    kwargs = PayloadField(_("named arguments"), default=dict, blank=True)
    #: The label of the app whose code defines it, with "@" and the setting RELEASE where there is one; empty for a schedule
    #: that people made.
    source = models.CharField(_("defined by app"), max_length=200, blank=True, default="")
    misfire = models.CharField(_("misfire"), max_length=10, default=Misfire.LATEST.value)
    misfire_grace = models.FloatField(_("misfire grace in seconds"), default=60.0)
    catch_up_window = models.FloatField(_("catch-up window in seconds"), default=86_400.0)
    catch_up_limit = models.IntegerField(_("catch-up limit"), default=100)
    overlap = models.CharField(_("overlap"), max_length=20, default=Overlap.ALLOW.value)
    jitter = models.FloatField(_("jitter in seconds"), default=0.0)
    starts_at = MomentField(_("starts at"), null=True, blank=True)
    ends_at = MomentField(_("ends at"), null=True, blank=True)
    pause_after_failures = models.IntegerField(_("pause after failures"), null=True, blank=True)
    paused = models.BooleanField(_("paused"), default=False)
    broken = models.TextField(_("broken"), blank=True, default="")
    #: Workers that could not compute it (their host may lack its time zone), each with the version that it could not.
    refused_by = models.JSONField(_("workers that could not compute it"), null=True, blank=True)
    version = models.IntegerField(_("version"), default=1)
    fired_through = MomentField(_("fired through"))
    next_fire_at = MomentField(_("next fire"), null=True, blank=True)
    waiting_for = MomentField(_("waiting for"), null=True, blank=True)
    #: When it was made or resumed last: `pause_after_failures` counts the runs from then on.
    resumed_at = MomentField(_("resumed at"))

    objects: ClassVar[models.Manager[CronSchedule]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        permissions = [("run_schedule", "Can run schedules now and backfill them")]
        indexes = [
            models.Index(
                fields=["next_fire_at"],
                condition=Q(paused=False, broken="", next_fire_at__isnull=False),
                name="reliable_jobs_due",
            ),
            models.Index(fields=["source"], condition=~Q(source=""), name="reliable_jobs_source"),
            models.Index(fields=["id"], condition=~Q(broken=""), name="reliable_jobs_broken"),
        ]

    def __str__(self) -> str:
        return self.name


class CronRunQuerySet(models.QuerySet["CronRun"]):
    def with_job(self) -> CronRunQuerySet:
        """With `shown_status` and `shown_finished_at`: the job's while its row is there, then those that were kept."""
        job = Job.objects.using(self.db).filter(pk=OuterRef("job_id"))
        return self.annotate(
            shown_status=Coalesce(Subquery(job.values("status")), NullIf(F("job_status"), models.Value(""))),
            shown_finished_at=Coalesce(Subquery(job.values("finished_at")), F("job_finished_at")),
        )


class CronRun(models.Model):
    """One fire time of a schedule, taken once: unique by (`name`, `scheduled_for`), whatever becomes of the job's row.

    A skipped stretch is one row: from `scheduled_for` to `skipped_through`, `skipped_count` fire times. While its job's
    row is there the run shows that job's status (`status`, or `with_job()` for many); `job_status` and `job_finished_at`
    are what is kept when it goes.
    """

    class Outcome(models.TextChoices):
        ENQUEUED = "enqueued", _("enqueued")
        SKIPPED_OVERLAP = "skipped_overlap", _("skipped, the run before was unfinished")
        SKIPPED_MISFIRE = "skipped_misfire", _("skipped, too late")
        ERROR = "error", _("error")

    name = models.CharField(_("schedule"), max_length=200)
    scheduled_for = MomentField(_("scheduled for"))
    outcome = models.CharField(_("outcome"), max_length=20, choices=Outcome.choices)
    detail = models.TextField(_("detail"), blank=True, default="")
    skipped_through = MomentField(_("skipped through"), null=True, blank=True)
    skipped_count = models.IntegerField(_("skipped fire times"), default=0)
    #: Not a foreign key: the run outlives the job.
    job_id = models.BigIntegerField(_("job"), null=True, blank=True)
    job_status = models.CharField(_("job status"), max_length=10, choices=JobStatus.choices, blank=True, default="")
    job_finished_at = MomentField(_("job finished at"), null=True, blank=True)
    fired_by = models.UUIDField(_("fired by worker"), null=True, blank=True)
    fired_at = MomentField(_("fired at"))
    manual = models.BooleanField(_("by a person"), default=False)

    objects: ClassVar[models.Manager[CronRun]] = JobsManager.from_queryset(CronRunQuerySet)()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("cron run")
        verbose_name_plural = _("cron runs")
        constraints = [
            models.UniqueConstraint(fields=["name", "scheduled_for"], name="reliable_jobs_run_once"),
        ]
        indexes = [
            models.Index(fields=["job_id"], condition=Q(job_id__isnull=False), name="reliable_jobs_run_job"),
            models.Index(fields=["fired_at"], name="reliable_jobs_run_fired"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.scheduled_for:%Y-%m-%d %H:%M:%S%z}"

    @property
    def lateness(self) -> float:
        """Seconds between the fire time and the fire."""
        return (self.fired_at - self.scheduled_for).total_seconds()

    @property
    def job(self) -> Job | None:
        """The job, while its row is there: one query."""
        return None if self.job_id is None else Job.objects.using(self._state.db).filter(pk=self.job_id).first()

    @property
    def status(self) -> str:
        """The job's status now, or the one it ended with if its row is gone; empty for a run that made no job."""
        return str(self._shown("shown_status", "status", self.job_status) or "")

    @property
    def finished_at(self) -> datetime | None:
        """When the job finished, whether its row is still there or not."""
        found: datetime | None = self._shown("shown_finished_at", "finished_at", self.job_finished_at)
        return found

    def _shown(self, annotation: str, field: str, kept: Any) -> Any:
        if annotation in self.__dict__:  # `with_job()` has asked already
            return self.__dict__[annotation]
        job = self.job
        return kept if job is None else getattr(job, field)


class ScheduleRelease(models.Model):
    """What one version of an app's code defines, as a fingerprint, and when it became the current one.

    In a rolling deploy two versions of an app are alive, and only the newer one may write the rows: an older worker that
    starts brings a fingerprint that has been replaced. It comes back only when no worker with the current one has been
    seen for a while: that is a rollback. Apart for each app, so that services with different apps can share a database.
    """

    #: The app's label, with "@" and the setting RELEASE where there is one.
    source = models.CharField(_("app"), max_length=200)
    fingerprint = models.CharField(_("fingerprint"), max_length=64)
    activated_at = MomentField(_("activated at"))
    seen_at = MomentField(_("seen at"))
    #: Since when workers with it have been seen without a break; None before a worker of this version of the package.
    seen_since = MomentField(_("seen since"), null=True, blank=True)

    objects: ClassVar[models.Manager[ScheduleRelease]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("schedule release")
        verbose_name_plural = _("schedule releases")
        constraints = [
            models.UniqueConstraint(fields=["source", "fingerprint"], name="reliable_jobs_release"),
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.fingerprint[:12]}"


class SchedulePause(models.Model):
    """A schedule in code that was paused when the code ceased to define it: it is paused when it comes back."""

    name = models.CharField(_("name"), max_length=200, primary_key=True)
    paused_at = MomentField(_("paused at"))

    objects: ClassVar[models.Manager[SchedulePause]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("kept pause")
        verbose_name_plural = _("kept pauses")

    def __str__(self) -> str:
        return self.name
