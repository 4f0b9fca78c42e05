"""The six statuses of a job and the moves between them; one meaning each (see `docs/reference/statuses.md`)."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class JobStatus(models.TextChoices):
    """What `Job.status` holds."""

    QUEUED = "QUEUED", _("queued")
    RUNNING = "RUNNING", _("running")
    FAILED = "FAILED", _("failed")
    DONE = "DONE", _("done")
    DEAD = "DEAD", _("dead")
    CANCELLED = "CANCELLED", _("cancelled")


CLAIMABLE = (JobStatus.QUEUED, JobStatus.FAILED)
UNFINISHED = (JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.FAILED)
FINISHED = (JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED)
RETRYABLE = (JobStatus.DEAD, JobStatus.FAILED, JobStatus.CANCELLED)

#: (from, to) -> the verbs that make the move. A move that is not here does not happen.
TRANSITIONS: dict[tuple[JobStatus, JobStatus], tuple[str, ...]] = {
    (JobStatus.QUEUED, JobStatus.RUNNING): ("claim",),
    (JobStatus.FAILED, JobStatus.RUNNING): ("claim",),
    (JobStatus.RUNNING, JobStatus.DONE): ("settle",),
    (JobStatus.RUNNING, JobStatus.FAILED): ("settle",),
    (JobStatus.RUNNING, JobStatus.DEAD): ("settle", "reap"),
    (JobStatus.RUNNING, JobStatus.CANCELLED): ("settle", "release", "snooze", "reap"),
    (JobStatus.RUNNING, JobStatus.QUEUED): ("release", "snooze", "reap"),
    (JobStatus.QUEUED, JobStatus.DEAD): ("unknown name",),
    (JobStatus.FAILED, JobStatus.DEAD): ("unknown name",),
    (JobStatus.QUEUED, JobStatus.CANCELLED): ("cancel", "expire"),
    (JobStatus.FAILED, JobStatus.CANCELLED): ("cancel", "expire"),
    (JobStatus.DEAD, JobStatus.QUEUED): ("retry",),
    (JobStatus.FAILED, JobStatus.QUEUED): ("retry",),
    (JobStatus.CANCELLED, JobStatus.QUEUED): ("retry",),
}

#: Why a job is in its status, where the status alone does not say it (`Job.reason`).
REASON_LOST = "lost"
REASON_EXPIRED = "expired"
REASON_UNKNOWN_JOB = "unknown job"
REASON_PERMANENT = "permanent failure"
REASON_ATTEMPTS = "attempts used up"
REASON_REQUESTED = "cancel requested"
REASON_DEADLINE = "deadline exceeded"
REASON_BAD_ARGUMENTS = "bad arguments"
REASON_RESULT = "result not stored"
REASON_INFRASTRUCTURE = "infrastructure"
REASON_NOT_STORED = "outcome not stored"
