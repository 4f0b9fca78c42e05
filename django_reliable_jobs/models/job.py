"""The job: one row from enqueue to retention's end."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs import payload
from django_reliable_jobs.models.fields import MomentField, PayloadField
from django_reliable_jobs.models.managers import JobsManager
from django_reliable_jobs.values.moments import CALENDAR
from django_reliable_jobs.values.states import CLAIMABLE, FINISHED, UNFINISHED, JobStatus

_MOMENTS = (
    "run_at", "expires_at", "locked_until", "cancel_requested_at", "scheduled_for", "unknown_since", "created_at", "started_at",
    "first_started_at", "finished_at",
)  # fmt: skip


class Job(models.Model):
    """A job. Rows are written by the store only; users read and filter them.

    `run_at`, `expires_at`, `locked_until` and the other times are compared with the database's clock, never with a
    host's. `fencing_token` is 0 until the first claim, rises with each claim and stays after the settle.
    `args`, `kwargs` and `result` hold the encoded payload; use the `arguments` and `value` properties for what the
    handler sees.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(_("name"), max_length=200)
    queue = models.CharField(_("queue"), max_length=100, default="default")
    args = PayloadField(_("positional arguments"), default=list)
    kwargs = PayloadField(_("named arguments"), default=dict)
    status = models.CharField(_("status"), max_length=10, choices=JobStatus.choices, default=JobStatus.QUEUED)
    reason = models.CharField(_("reason"), max_length=100, blank=True, default="")
    priority = models.SmallIntegerField(_("priority"), default=0)
    run_at = MomentField(_("run at"), default=timezone.now)
    expires_at = MomentField(_("expires at"), null=True, blank=True)
    attempts = models.IntegerField(_("attempts"), default=0)
    max_attempts = models.IntegerField(_("max attempts"), null=True, blank=True)
    losses = models.IntegerField(_("losses"), default=0)
    infrastructure_failures = models.SmallIntegerField(_("infrastructure failures"), default=0, db_default=0)
    timeout = models.FloatField(_("timeout in seconds"), null=True, blank=True)
    locked_by = models.UUIDField(_("worker"), null=True, blank=True)
    locked_until = MomentField(_("locked until"), null=True, blank=True)
    fencing_token = models.BigIntegerField(_("fencing token"), default=0)
    cancel_requested_at = MomentField(_("cancel requested at"), null=True, blank=True)
    unique_key = models.CharField(_("unique key"), max_length=255, null=True, blank=True)
    unique_until_start = models.BooleanField(_("unique until it starts"), default=False)
    #: Whose keys these are, since two jobs may use the same text: the oldest name of the job. None in rows of older code.
    scope = models.CharField(_("scope of its keys"), max_length=200, null=True, blank=True)
    idempotency_key = models.CharField(_("idempotency key"), max_length=255, null=True, blank=True)
    concurrency_key = models.CharField(_("concurrency key"), max_length=255, null=True, blank=True)
    scheduled_for = MomentField(_("scheduled for"), null=True, blank=True)
    #: The name of the schedule that enqueued it. None also in rows of versions that did not write it.
    schedule = models.CharField(_("schedule"), max_length=200, null=True, blank=True)
    unknown_since = MomentField(_("name unknown since"), null=True, blank=True)
    result = PayloadField(_("result"), null=True, blank=True)
    progress = PayloadField(_("progress"), null=True, blank=True)
    created_at = MomentField(_("created at"), default=timezone.now)
    started_at = MomentField(_("started at"), null=True, blank=True)
    first_started_at = MomentField(_("first started at"), null=True, blank=True)
    finished_at = MomentField(_("finished at"), null=True, blank=True)

    objects: ClassVar[models.Manager[Job]] = JobsManager()

    #: Set on what `enqueue` returns: False when an existing job was returned instead of a new one.
    created: bool | None = None

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions = [("retry_job", "Can retry jobs"), ("cancel_job", "Can cancel jobs")]
        constraints = [
            # Keys belong to a job: to its scope, or its name where older code has made the row. Who is being cancelled does
            # not hold its unique key any more, so that a cancel and an enqueue behind it make a new job.
            models.UniqueConstraint(
                F("unique_key"),
                Coalesce("scope", "name"),
                condition=Q(
                    unique_key__isnull=False,
                    status__in=[s.value for s in UNFINISHED],
                    cancel_requested_at__isnull=True,
                ),
                name="reliable_jobs_unique_scope",
            ),
            models.UniqueConstraint(
                F("idempotency_key"),
                Coalesce("scope", "name"),
                condition=Q(idempotency_key__isnull=False),
                name="reliable_jobs_idempotency_scope",
            ),
            models.CheckConstraint(
                condition=Q(status__in=[s.value for s in JobStatus]), name="reliable_jobs_status_known"
            ),
            models.CheckConstraint(
                condition=~Q(status=JobStatus.RUNNING.value)
                | Q(locked_by__isnull=False, locked_until__isnull=False, fencing_token__gt=0),
                name="reliable_jobs_running_has_lease",
            ),
            models.CheckConstraint(
                condition=Q(priority__gte=-100, priority__lte=100), name="reliable_jobs_priority_range"
            ),
            # What Python has no date for would be read as another moment than the one that the database goes by.
            models.CheckConstraint(
                condition=Q(**{f"{name}__range": CALENDAR for name in _MOMENTS}), name="reliable_jobs_calendar"
            ),
        ]
        # Partial, so that an index holds only the rows its reader wants: a claim never meets finished or running rows,
        # and a finished job costs the claim nothing.
        indexes = [
            models.Index(
                F("queue"),
                F("priority").desc(),
                F("run_at"),
                F("id"),
                condition=Q(status__in=[s.value for s in CLAIMABLE]),
                name="reliable_jobs_claim",
            ),
            models.Index(
                fields=["locked_until"], condition=Q(status=JobStatus.RUNNING.value), name="reliable_jobs_running"
            ),
            models.Index(
                fields=["expires_at"],
                condition=Q(
                    expires_at__isnull=False, first_started_at__isnull=True, status__in=[s.value for s in CLAIMABLE]
                ),
                name="reliable_jobs_unbegun",
            ),
            models.Index(
                fields=["status", "finished_at"],
                condition=Q(status__in=[s.value for s in FINISHED]),
                name="reliable_jobs_finished",
            ),
            # For people: what waits for another attempt, among any number that wait for their first one.
            models.Index(fields=["id"], condition=Q(status=JobStatus.FAILED.value), name="reliable_jobs_failed"),
            # Of schedules' jobs only: what is unfinished of a schedule's earlier fires, whatever is unfinished of others'. Rows
            # of versions that did not write `schedule` are under the empty name.
            models.Index(
                Coalesce(F("schedule"), Value("")),
                F("id"),
                condition=Q(scheduled_for__isnull=False, status__in=[s.value for s in UNFINISHED]),
                name="reliable_jobs_of_schedule",
            ),
            # For workers of versions that did not write `schedule`.
            models.Index(
                fields=["scheduled_for"],
                condition=Q(scheduled_for__isnull=False, status__in=[s.value for s in UNFINISHED]),
                name="reliable_jobs_scheduled",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} #{self.pk}"

    @property
    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as the handler gets them, decoded. Raises `PayloadError` for what raw SQL has written."""
        return payload.as_call(payload.decode(self.args), payload.decode(self.kwargs))

    @property
    def value(self) -> Any:
        """The handler's return value, decoded; None while there is none."""
        return payload.decode(self.result)
