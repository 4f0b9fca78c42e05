"""Prune: finished jobs at the end of their retention, and attempts beyond those that are kept, a batch at a time."""

from __future__ import annotations

from datetime import timedelta

from django.db.models.functions import Now

from django_reliable_jobs.models import Job
from django_reliable_jobs.store import references
from django_reliable_jobs.store.statements import change, run
from django_reliable_jobs.values.states import FINISHED, JobStatus

#: Attempts, the newest ones, whose jobs are looked at for too many.
LOOKED_AT = 2000


def prune(alias: str, status: JobStatus, age: float, batch: int) -> int:
    """Delete up to `batch` jobs with this finished status that finished more than `age` seconds ago; how many.

    Never one that a foreign key of the project's keeps, see `references`.
    """
    if references.foreign_keys(alias) and status in FINISHED:
        old = Job.objects.using(alias).filter(status=status, finished_at__lt=Now() - timedelta(seconds=age))
        return len(references.delete(alias, old.order_by("finished_at"), batch, wait=False))
    return len(run(alias, "prune", {"status": status.value, "age": age, "batch": batch}))


def prune_runs(alias: str, age: float, batch: int) -> int:
    """Delete up to `batch` cron runs that were fired more than `age` seconds ago; how many."""
    return len(run(alias, "prune_runs", {"age": age, "batch": batch}))


def prune_attempts(alias: str, keep: int, batch: int) -> int:
    """Delete up to `batch` attempts of jobs that have many; how many. Of each job the first and the newest `keep` stay."""
    return change(alias, "prune_attempts", {"keep": keep, "looked_at": LOOKED_AT, "batch": batch})
