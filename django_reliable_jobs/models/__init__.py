"""Tables, constraints and indexes; no verbs. Whoever wants to change a row calls `enqueue`, `control` or a worker."""

from django_reliable_jobs.models.attempt import JobAttempt
from django_reliable_jobs.models.checkpoint import JobCheckpoint
from django_reliable_jobs.models.job import Job
from django_reliable_jobs.models.queue_state import QueueState
from django_reliable_jobs.models.worker import Worker
from django_reliable_jobs.states import JobStatus

__all__ = ["Job", "JobAttempt", "JobCheckpoint", "JobStatus", "QueueState", "Worker"]
