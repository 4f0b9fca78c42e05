"""Rows in any state, made without the store: what a test needs to be there before it begins.

Times are this host's, which is also the database's; only the store may not mix the two up.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import factory
from django.utils import timezone
from factory.django import DjangoModelFactory

from django_reliable_jobs.models import Job, JobAttempt, JobCheckpoint, JobStatus, QueueState, Worker
from django_reliable_jobs.store.tokens import fencing_tokens
from django_reliable_jobs.values.lease import Lease

#: Whose the RUNNING jobs are that a test makes without saying so.
OWNER = UUID(int=0xA11CE)


def ago(seconds: float) -> datetime:
    return timezone.now() - timedelta(seconds=seconds)


def next_token() -> int:
    return fencing_tokens("default")[0]


class JobFactory(DjangoModelFactory[Job]):
    """A QUEUED job that is due; the traits make one in another status."""

    class Meta:
        model = Job

    class Params:
        running = factory.Trait(
            status=JobStatus.RUNNING,
            attempts=1,
            locked_by=OWNER,
            locked_until=factory.LazyFunction(lambda: ago(-30)),
            fencing_token=factory.LazyFunction(next_token),
            started_at=factory.LazyFunction(timezone.now),
            first_started_at=factory.SelfAttribute("started_at"),
        )
        failed = factory.Trait(
            status=JobStatus.FAILED,
            attempts=1,
            fencing_token=factory.LazyFunction(next_token),
            started_at=factory.LazyFunction(lambda: ago(60)),
            first_started_at=factory.SelfAttribute("started_at"),
        )
        done = factory.Trait(
            status=JobStatus.DONE,
            attempts=1,
            fencing_token=factory.LazyFunction(next_token),
            started_at=factory.LazyFunction(lambda: ago(60)),
            first_started_at=factory.SelfAttribute("started_at"),
            finished_at=factory.LazyFunction(lambda: ago(30)),
        )
        dead = factory.Trait(
            status=JobStatus.DEAD,
            reason="permanent failure",
            attempts=1,
            fencing_token=factory.LazyFunction(next_token),
            started_at=factory.LazyFunction(lambda: ago(60)),
            first_started_at=factory.SelfAttribute("started_at"),
            finished_at=factory.LazyFunction(lambda: ago(30)),
        )
        cancelled = factory.Trait(
            status=JobStatus.CANCELLED,
            reason="cancel requested",
            cancel_requested_at=factory.LazyFunction(lambda: ago(31)),
            finished_at=factory.LazyFunction(lambda: ago(30)),
        )

    name = "probes.noop"
    run_at = factory.LazyFunction(lambda: ago(60))
    max_attempts = 5


class EchoFactory(JobFactory):
    """A job of `echo`: it holds its keys against what `echo.using(...)` enqueues."""

    name = "probes.echo"


class JobAttemptFactory(DjangoModelFactory[JobAttempt]):
    class Meta:
        model = JobAttempt

    job = factory.SubFactory(JobFactory, failed=True)
    fencing_token = factory.LazyFunction(next_token)
    attempt = 1
    status = JobStatus.FAILED
    finished_at = factory.LazyFunction(timezone.now)
    error_kind = "ValueError"
    error_message = "no"


class JobCheckpointFactory(DjangoModelFactory[JobCheckpoint]):
    class Meta:
        model = JobCheckpoint

    job = factory.SubFactory(JobFactory, running=True)
    fencing_token = factory.LazyFunction(next_token)
    version = 1
    value = 1
    updated_at = factory.LazyFunction(timezone.now)


class QueueStateFactory(DjangoModelFactory[QueueState]):
    class Meta:
        model = QueueState

    queue = "default"
    paused = True
    changed_at = factory.LazyFunction(timezone.now)


class WorkerFactory(DjangoModelFactory[Worker]):
    class Meta:
        model = Worker

    id = factory.LazyFunction(uuid4)
    host = "host"
    pid = 1
    version = "0"
    slots = 8
    started_at = factory.LazyFunction(timezone.now)
    last_seen = factory.LazyFunction(timezone.now)


def lease_of(job: Job, **changes: Any) -> Lease:
    """The lease that the owner of a RUNNING row holds; with `changes` one that only looks like it."""
    values: dict[str, Any] = {
        "job_id": job.pk, "token": job.fencing_token, "name": job.name, "queue": job.queue, "priority": job.priority,
        "args": "[]", "kwargs": "{}", "attempt": job.attempts, "max_attempts": job.max_attempts, "losses": job.losses,
        "timeout": job.timeout, "idempotency_key": job.idempotency_key, "scheduled_for": job.scheduled_for,
        "run_at": job.run_at,
    }  # fmt: skip
    return Lease(**values | changes)
