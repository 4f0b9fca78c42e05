"""Who holds a key: an unfinished job its unique key, any job its idempotency key, for the calls of the same job (protocol 12).

A key belongs to a job under all its names. The unique indexes decide by the scope, which is the oldest of them, or by the
row's name where older code has made it. A job that is being cancelled holds its unique key no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import IntegrityError
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce

from django_reliable_jobs.errors import ReliableJobsError
from django_reliable_jobs.models import Job
from django_reliable_jobs.store.new_job import Call, NewJob
from django_reliable_jobs.store.statements import run
from django_reliable_jobs.values.states import UNFINISHED

# A key's holder must finish in between every time for a further round to be needed.
MAX_ROUNDS = 100
#: Keys in one look-up: a statement has 65,535 parameters at most where the server binds them.
CHUNK = 5000


def find_holders(
    alias: str, new: NewJob, calls: Sequence[Call], waiting: Sequence[int], result: dict[int, tuple[int, bool]]
) -> list[int]:
    """Fill in the jobs that hold the keys of `waiting`; what has no holder any more is returned."""
    left: list[int] = []
    for at in range(0, len(waiting), CHUNK):
        left += _find_holders(alias, new, calls, waiting[at : at + CHUNK], result)
    return left


def _find_holders(
    alias: str, new: NewJob, calls: Sequence[Call], waiting: Sequence[int], result: dict[int, tuple[int, bool]]
) -> list[int]:
    jobs = jobs_of(alias, new.names)
    by_idempotency = dict(
        jobs.filter(
            idempotency_key__in=[calls[i].idempotency_key for i in waiting if calls[i].idempotency_key]
        ).values_list("idempotency_key", "id")
    )
    held = jobs.filter(
        unique_key__in=[calls[i].unique_key for i in waiting if calls[i].unique_key],
        status__in=UNFINISHED,
        cancel_requested_at=None,
    ).values_list("unique_key", "id", "expires_at")
    by_unique = {key: job_id for key, job_id, _ in held}
    if may_be_late := [key for key, _, expires_at in held if expires_at is not None]:
        expired = expire_holders(alias, new.names, may_be_late)
        by_unique = {key: job_id for key, job_id in by_unique.items() if job_id not in expired}
    left: list[int] = []
    for i in waiting:
        holder = by_idempotency.get(calls[i].idempotency_key) or by_unique.get(calls[i].unique_key)
        if holder is None:
            left.append(i)
        else:
            result[i] = (holder, False)
    return left


def expire_holders(alias: str, names: Iterable[str], unique_keys: Iterable[str | None]) -> set[int]:
    """Cancel the waiting jobs with these keys, under any of a job's names, that have expired; their ids."""
    return {row[0] for row in run(alias, "expire_holders", {"unique_keys": list(unique_keys), "names": list(names)})}


def holder_of(alias: str, new: NewJob, call: Call) -> Job | None:
    jobs = jobs_of(alias, new.names)
    if call.idempotency_key is not None:
        holder = jobs.filter(idempotency_key=call.idempotency_key).first()
        if holder is not None:
            return holder
    if call.unique_key is not None:
        # One that is being cancelled is not in the index: it holds its key no more.
        return jobs.filter(unique_key=call.unique_key, status__in=UNFINISHED, cancel_requested_at=None).first()
    return None


def jobs_of(alias: str, names: Iterable[str]) -> QuerySet[Job]:
    """The rows of a job under any of its names, whatever scope the code has stored that made them."""
    return Job.objects.using(alias).alias(owner=Coalesce("scope", "name")).filter(owner__in=names)


def may_have_other_scopes(new: NewJob, calls: Sequence[Call]) -> bool:
    """A renamed job's keys may be held in another scope, where the index sees no conflict: in a row of older code, which
    stores none, or by code that names the aliases in another order."""
    return len(new.names) > 1 and any(c.unique_key is not None or c.idempotency_key is not None for c in calls)


def holder_before_scopes(alias: str, new: NewJob, call: Call) -> Job:
    """Who keeps the call from being inserted although nobody of its job holds a key.

    That is so on a schema whose last migration has not been applied: there a key is every job's. Raises
    `ReliableJobsError` for a holder that is another job, or when there is none: the keys really changed hands all the time.
    """
    keys = Q(unique_key=call.unique_key, status__in=UNFINISHED) if call.unique_key is not None else Q()
    if call.idempotency_key is not None:
        keys |= Q(idempotency_key=call.idempotency_key)
    holders = list(Job.objects.using(alias).filter(keys).order_by("pk"))
    for holder in holders:
        if (holder.scope or holder.name) in new.names:
            return holder  # it is being cancelled
    for holder in holders:
        raise ReliableJobsError(
            f"{new.name}: job {holder.pk} of {holder.name} holds the same key. Two jobs may use the same text once all"
            " migrations of django_reliable_jobs are applied; the last ones are not."
        )
    raise ReliableJobsError(
        f"{new.name}: the job that holds the key {call.unique_key or call.idempotency_key!r} finished {MAX_ROUNDS} times"
        " in a row while this one was enqueued; enqueue it again."
    )


def is_key_of_all(error: IntegrityError) -> bool:
    """Whether the key is held by the index from before keys had a scope: by whatever job it may be."""
    return getattr(getattr(error.__cause__, "diag", None), "constraint_name", None) == "reliable_jobs_unique_key"
