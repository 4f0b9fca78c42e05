"""What people and code do to jobs from outside: cancel, retry, run now, a new priority, delete, pause a queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

from django.db import IntegrityError, OperationalError, transaction
from django.db.models.functions import Coalesce

from django_reliable_jobs.errors import ReliableJobsError
from django_reliable_jobs.models import Job
from django_reliable_jobs.store import references
from django_reliable_jobs.store.key_holders import MAX_ROUNDS, is_key_of_all
from django_reliable_jobs.store.statements import run
from django_reliable_jobs.values.states import UNFINISHED, JobStatus


class Woken(NamedTuple):
    """A job that became claimable, and where."""

    id: int
    queue: str
    priority: int


class Cancelled(NamedTuple):
    """A job that is cancelled, or (`status` RUNNING) whose worker is asked to stop it."""

    id: int
    status: str
    worker: UUID | None


class Clash(NamedTuple):
    """A retry that its `unique_key` forbids: `holder` is the unfinished job that has the key."""

    id: int
    holder: int


class RowLocked(ReliableJobsError):
    """Another transaction holds one of the rows for longer than the caller wants to wait; nothing is changed."""


@contextmanager
def patience(alias: str, seconds: float) -> Iterator[None]:
    """A transaction whose statements wait for locked rows for so long at most. Raises `RowLocked`."""
    try:
        with transaction.atomic(using=alias):
            run(alias, "lock_timeout", {"patience": max(1, round(seconds * 1000))})
            yield
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != "55P03":
            raise
        raise RowLocked("another transaction has the row locked") from error


def cancel(alias: str, job_ids: Sequence[int]) -> list[Cancelled]:
    return [Cancelled(*row) for row in run(alias, "cancel", {"job_ids": list(job_ids)})]


def retry(alias: str, job_id: int) -> Woken | Clash | None:
    """Queue a DEAD, FAILED or CANCELLED job again; None when it is in another status by now.

    A savepoint for each job: its `unique_key` may be taken by an unfinished one.
    """
    for _ in range(MAX_ROUNDS):
        try:
            with transaction.atomic(using=alias):
                rows = run(alias, "retry", {"job_id": job_id})
            return Woken(*rows[0]) if rows else None
        except IntegrityError as error:
            # Nobody holds the key any more if the holder has just finished, or if this job is gone: try again.
            if (holder := _holder(alias, job_id, of_any_job=is_key_of_all(error))) is not None:
                return Clash(job_id, holder)
    raise ReliableJobsError(f"job {job_id}: its unique key changed hands {MAX_ROUNDS} times; retry it again.")


def _holder(alias: str, job_id: int, *, of_any_job: bool) -> int | None:
    jobs = Job.objects.using(alias).annotate(owner=Coalesce("scope", "name"))
    for key, owner in jobs.filter(pk=job_id, unique_key__isnull=False).values_list("unique_key", "owner"):
        holders = jobs.filter(unique_key=key, status__in=UNFINISHED).exclude(pk=job_id)
        if not of_any_job:
            holders = holders.filter(owner=owner, cancel_requested_at=None)
        return holders.values_list("pk", flat=True).first()
    return None


def retry_many(alias: str, job_ids: Sequence[int]) -> list[Woken]:
    """Queue those again that can be, in one statement; none when a unique key was taken at that moment."""
    try:
        with transaction.atomic(using=alias):
            return [Woken(*row) for row in run(alias, "retry_many", {"job_ids": list(job_ids)})]
    except IntegrityError:
        return []


def retry_refused(alias: str, job_ids: Sequence[int]) -> dict[int, int | None]:
    """Of those jobs that a retry could change: who holds its unique key, None if nobody does."""
    return dict(run(alias, "retry_refused", {"job_ids": list(job_ids)}))


def run_now(alias: str, job_ids: Sequence[int]) -> list[Woken]:
    return [Woken(*row) for row in run(alias, "run_now", {"job_ids": list(job_ids)})]


def set_priority(alias: str, job_ids: Sequence[int], priority: int) -> list[Woken]:
    return [Woken(*row) for row in run(alias, "set_priority", {"job_ids": list(job_ids), "priority": priority})]


def delete(alias: str, job_ids: Sequence[int]) -> list[int]:
    """The ids of those that are deleted; a RUNNING one never is, nor one that a foreign key of the project's keeps."""
    if references.foreign_keys(alias):
        jobs = Job.objects.using(alias).filter(pk__in=job_ids).exclude(status=JobStatus.RUNNING)
        return references.delete(alias, jobs.order_by("pk"))
    return [job_id for (job_id,) in run(alias, "delete", {"job_ids": list(job_ids)})]


def pause(alias: str, queue: str, paused: bool) -> bool:
    """Whether this changed anything."""
    return bool(run(alias, "pause_queue", {"queue": queue, "paused": paused}))
