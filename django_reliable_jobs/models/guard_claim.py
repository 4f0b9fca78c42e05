"""Which guard keys are claimed."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models.fields import MomentField
from django_reliable_jobs.models.managers import JobsManager


class GuardClaim(models.Model):
    """The last claim of a guard key. The key is free once `expires_at` has passed by the database's clock.

    `key` is what the caller named, behind the kind of guard (`period:`, `once:`, `run:`, `exclusive:`). `expires_at` is
    NULL for a claim without an end. `done` marks a `run_once` that has succeeded: no lease any more. The row stays after
    its release, so that `fencing_token` of a key only rises; rows that expired a day ago are pruned.
    """

    id = models.BigAutoField(primary_key=True)
    key = models.CharField(_("key"), max_length=520)
    owner = models.CharField(_("owner"), max_length=200)
    fencing_token = models.BigIntegerField(_("fencing token"))
    done = models.BooleanField(_("done"), default=False)
    claimed_at = MomentField(_("claimed at"))
    expires_at = MomentField(_("expires at"), null=True, blank=True)

    objects: ClassVar[models.Manager[GuardClaim]] = JobsManager()

    class Meta:
        app_label = "django_reliable_jobs"
        verbose_name = _("guard claim")
        verbose_name_plural = _("guard claims")
        constraints = [models.UniqueConstraint(fields=["key"], name="reliable_jobs_guard_key")]
        indexes = [
            models.Index(
                fields=["expires_at"], condition=Q(expires_at__isnull=False), name="reliable_jobs_guard_expiry"
            ),
        ]

    def __str__(self) -> str:
        return self.key
