"""Tables, constraints and indexes; no verbs. Whoever wants to change a row calls `enqueue`, `control` or a worker."""

from django_reliable_jobs.models.attempt import JobAttempt
from django_reliable_jobs.models.checkpoint import JobCheckpoint
from django_reliable_jobs.models.fence import Fence
from django_reliable_jobs.models.guard_claim import GuardClaim
from django_reliable_jobs.models.job import Job
from django_reliable_jobs.models.queue_state import QueueState
from django_reliable_jobs.models.schedule import CronRun, CronSchedule, SchedulePause, ScheduleRelease
from django_reliable_jobs.models.token_mark import TokenMark
from django_reliable_jobs.models.worker import KnownNames, UnknownName, Worker
from django_reliable_jobs.values.states import JobStatus

__all__ = [
    "CronRun",
    "CronSchedule",
    "Fence",
    "GuardClaim",
    "Job",
    "JobAttempt",
    "JobCheckpoint",
    "JobStatus",
    "KnownNames",
    "QueueState",
    "SchedulePause",
    "ScheduleRelease",
    "TokenMark",
    "UnknownName",
    "Worker",
]
