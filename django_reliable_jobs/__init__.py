"""Scheduled and background jobs that stay correct, on the PostgreSQL that you already run."""

from django_reliable_jobs.decorators import job
from django_reliable_jobs.definitions.schedule import cron, every
from django_reliable_jobs.errors import (
    AlreadyEnqueued,
    DeadlineExceeded,
    JobCancelled,
    JobConfigurationError,
    LeaseLost,
    PayloadError,
    PermanentFailure,
    ReliableJobsError,
    Retry,
    Snooze,
    StaleToken,
    UnknownJob,
)
from django_reliable_jobs.running.context import JobContext, current_job
from django_reliable_jobs.values.backoff import Backoff
from django_reliable_jobs.values.states import JobStatus

__all__ = [
    "AlreadyEnqueued",
    "Backoff",
    "DeadlineExceeded",
    "JobCancelled",
    "JobConfigurationError",
    "JobContext",
    "JobStatus",
    "LeaseLost",
    "PayloadError",
    "PermanentFailure",
    "ReliableJobsError",
    "Retry",
    "Snooze",
    "StaleToken",
    "UnknownJob",
    "cron",
    "current_job",
    "every",
    "job",
]

__version__ = "0.1.0"
