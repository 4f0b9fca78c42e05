"""Insert: one job or many, without a duplicate of a key and without losing one to a rival that rolls back.

The loop of protocol 12. What can interleave: between the INSERT that found a conflict and the look-up, the holder of
the key may finish (then nobody has the key: insert again) or be rolled back (the INSERT itself waited for it, so it
did not conflict). The statement that decides is always the INSERT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_reliable_jobs.errors import ReliableJobsError
from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.states import UNFINISHED
from django_reliable_jobs.store.statements import as_django, run, run_positional

# A key's holder must finish in between every time for a further round to be needed.
MAX_ROUNDS = 100
#: Rows in one INSERT of a bulk enqueue.
CHUNK = 5000


@dataclass(slots=True)
class NewJob:
    """What all calls of one enqueue share. `delay` and `expires_in` are in seconds."""

    name: str
    queue: str
    priority: int
    run_at: datetime | None
    delay: float
    expires_at: datetime | None
    expires_in: float | None
    max_attempts: int | None
    timeout: float | None
    unique_until_start: bool
    scheduled_for: datetime | None = None

    def params(self) -> dict[str, Any]:
        return {field: getattr(self, field) for field in self.__slots__}


@dataclass(slots=True)
class Call:
    """One call: the encoded arguments and its keys."""

    args: str
    kwargs: str
    unique_key: str | None = None
    idempotency_key: str | None = None


@dataclass(slots=True)
class Inserted:
    """The id, and the times of the row if it is new; `holder` is the job that was there."""

    id: int
    run_at: datetime
    expires_at: datetime | None
    created_at: datetime
    holder: Job | None = None


def insert(alias: str, new: NewJob, call: Call, *, replace: bool = False) -> Inserted:
    """One job, or the holder of its key. With `replace` a waiting holder of the unique key gets the new call."""
    params = new.params() | {
        "args": call.args,
        "kwargs": call.kwargs,
        "unique_key": call.unique_key,
        "idempotency_key": call.idempotency_key,
    }
    for _ in range(MAX_ROUNDS):
        rows = run_positional(alias, "insert", params, prepare=True)
        if rows:
            job_id, run_at, expires_at, created_at = rows[0]
            created_at = as_django(created_at)
            return Inserted(
                job_id,
                created_at if run_at is None else as_django(run_at),
                None if expires_at is None else as_django(expires_at),
                created_at,
            )
        holder = _holder(alias, call)
        if holder is None:
            continue
        by_unique_key = call.idempotency_key is None or holder.idempotency_key != call.idempotency_key
        if by_unique_key and holder.expires_at is not None and _expire_holders(alias, [call.unique_key]):
            continue
        if by_unique_key and replace:
            replaced = run(alias, "replace", params)
            if replaced:
                return _found(Job.objects.using(alias).get(pk=replaced[0][0]))
            holder = _holder(alias, call)
            if holder is None or holder.status != JobStatus.RUNNING:
                continue
        return _found(holder)
    raise ReliableJobsError(
        f"{new.name}: the job that holds the unique key {call.unique_key!r} finished {MAX_ROUNDS} times in a row"
        " while this one was enqueued; enqueue it again."
    )


def _found(holder: Job) -> Inserted:
    return Inserted(holder.pk, holder.run_at, holder.expires_at, holder.created_at, holder)


def insert_many(alias: str, new: NewJob, calls: Sequence[Call]) -> list[tuple[int, bool]]:
    """The id for each call in order, and whether its row is new. Keys are sorted, and one key makes one job.

    More than `CHUNK` calls are several statements: all or none is up to the caller's transaction.
    """
    if not any(call.unique_key is not None or call.idempotency_key is not None for call in calls):
        return [(row[0], True) for row in _insert_rows(alias, new, calls)]
    result: dict[int, tuple[int, bool]] = {}
    pending = sorted(range(len(calls)), key=lambda i: (calls[i].idempotency_key or "", calls[i].unique_key or ""))
    for _ in range(MAX_ROUNDS):
        chosen, waiting = _without_twins(calls, pending)
        rows = _insert_rows(alias, new, [calls[i] for i in chosen])
        made = {(row[1], row[2]): row[0] for row in rows if row[1] is not None or row[2] is not None}
        plain = iter([row[0] for row in rows if row[1] is None and row[2] is None])
        for i in chosen:
            keys = (calls[i].unique_key, calls[i].idempotency_key)
            if keys == (None, None):
                result[i] = (next(plain), True)
            elif keys in made:
                result[i] = (made[keys], True)
        waiting = sorted([*waiting, *(i for i in chosen if i not in result)], key=pending.index)
        pending = _find_holders(alias, calls, waiting, result)
        if not pending:
            return [result[i] for i in range(len(calls))]
    raise ReliableJobsError(
        f"{new.name}: keys of this bulk enqueue changed hands {MAX_ROUNDS} times; enqueue it again."
    )


def _insert_rows(alias: str, new: NewJob, calls: Sequence[Call]) -> list[tuple[Any, ...]]:
    rows = []
    for at in range(0, len(calls), CHUNK):
        chunk = calls[at : at + CHUNK]
        many = {
            "args": [c.args for c in chunk],
            "kwargs": [c.kwargs for c in chunk],
            "unique_keys": [c.unique_key for c in chunk],
            "idempotency_keys": [c.idempotency_key for c in chunk],
        }
        rows += run(alias, "insert_many", new.params() | many)
    return rows


def _without_twins(calls: Sequence[Call], pending: Sequence[int]) -> tuple[list[int], list[int]]:
    """Split: at most one call of each key, and the others, for which that one's job is the holder."""
    seen: set[tuple[str, str]] = set()
    chosen: list[int] = []
    twins: list[int] = []
    for i in pending:
        keys = {
            (kind, key)
            for kind, key in (("unique", calls[i].unique_key), ("idempotency", calls[i].idempotency_key))
            if key is not None
        }
        (twins if keys & seen else chosen).append(i)
        seen |= keys
    return chosen, twins


def _find_holders(
    alias: str, calls: Sequence[Call], waiting: Sequence[int], result: dict[int, tuple[int, bool]]
) -> list[int]:
    """Fill in the jobs that hold the keys of `waiting`; what has no holder any more is returned."""
    if not waiting:
        return []
    jobs = Job.objects.using(alias)
    by_idempotency = dict(
        jobs.filter(
            idempotency_key__in=[calls[i].idempotency_key for i in waiting if calls[i].idempotency_key]
        ).values_list("idempotency_key", "id")
    )
    held = jobs.filter(
        unique_key__in=[calls[i].unique_key for i in waiting if calls[i].unique_key], status__in=UNFINISHED
    ).values_list("unique_key", "id", "expires_at")
    by_unique = {key: job_id for key, job_id, _ in held}
    if may_be_late := [key for key, _, expires_at in held if expires_at is not None]:
        expired = _expire_holders(alias, may_be_late)
        by_unique = {key: job_id for key, job_id in by_unique.items() if job_id not in expired}
    left: list[int] = []
    for i in waiting:
        holder = by_idempotency.get(calls[i].idempotency_key) or by_unique.get(calls[i].unique_key)
        if holder is None:
            left.append(i)
        else:
            result[i] = (holder, False)
    return left


def _expire_holders(alias: str, unique_keys: Sequence[str | None]) -> set[int]:
    """Cancel those of the keys' waiting jobs whose `expires_at` has passed; their ids."""
    return {row[0] for row in run(alias, "expire_holders", {"unique_keys": list(unique_keys)})}


def _holder(alias: str, call: Call) -> Job | None:
    jobs = Job.objects.using(alias)
    if call.idempotency_key is not None:
        holder = jobs.filter(idempotency_key=call.idempotency_key).first()
        if holder is not None:
            return holder
    if call.unique_key is not None:
        return jobs.filter(unique_key=call.unique_key, status__in=UNFINISHED).first()
    return None
