"""Prune: finished jobs at the end of their retention, a batch at a time."""

from __future__ import annotations

from django_reliable_jobs.states import JobStatus
from django_reliable_jobs.store.statements import run


def prune(alias: str, status: JobStatus, age: float, batch: int) -> int:
    """Delete up to `batch` jobs with this finished status that finished more than `age` seconds ago; how many."""
    return len(run(alias, "prune", {"status": status.value, "age": age, "batch": batch}))


def prune_runs(alias: str, age: float, batch: int) -> int:
    """Delete up to `batch` cron runs that were fired more than `age` seconds ago; how many."""
    return len(run(alias, "prune_runs", {"age": age, "batch": batch}))
