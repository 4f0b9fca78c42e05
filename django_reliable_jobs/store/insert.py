"""Insert: one job or many, without a duplicate of a key and without losing one to a rival that rolls back.

The loop of protocol 12. What can interleave: between the INSERT that found a conflict and the look-up, the holder of
the key may finish (then nobody has the key: insert again) or be rolled back (the INSERT itself waited for it, so it
did not conflict). The statement that decides is always the INSERT.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.store.key_holders import (
    MAX_ROUNDS,
    expire_holders,
    find_holders,
    holder_before_scopes,
    holder_of,
    may_have_other_scopes,
)
from django_reliable_jobs.store.new_job import Call, NewJob
from django_reliable_jobs.store.statements import as_django, run, run_positional

#: Rows in one INSERT of a bulk enqueue.
CHUNK = 5000


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
    look_first = may_have_other_scopes(new, [call])
    for _ in range(MAX_ROUNDS):
        holder = holder_of(alias, new, call) if look_first else None
        if holder is None:
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
            holder = holder_of(alias, new, call)
        if holder is None:
            continue
        by_unique_key = call.idempotency_key is None or holder.idempotency_key != call.idempotency_key
        if by_unique_key and holder.expires_at is not None and expire_holders(alias, new.names, [call.unique_key]):
            continue
        if by_unique_key and replace:
            if (replaced := _replace(alias, params | {"holder": holder.pk})) is not None:
                return _found(Job.objects.using(alias).get(pk=replaced))
            holder = holder_of(alias, new, call)
            if holder is None or holder.status != JobStatus.RUNNING:
                continue
        return _found(holder)
    return _found(holder_before_scopes(alias, new, call))


def _replace(alias: str, params: dict[str, Any]) -> int | None:
    """The id of the holder, if it has become the new call; a rival may take the idempotency key just now."""
    keyed = params["idempotency_key"] is not None
    try:
        with transaction.atomic(using=alias) if keyed else nullcontext():
            rows = run(alias, "replace", params)
    except IntegrityError:
        if not keyed:
            raise
        return None
    return rows[0][0] if rows else None


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
    look_first = may_have_other_scopes(new, calls)
    for _ in range(MAX_ROUNDS):
        if look_first:
            pending = find_holders(alias, new, calls, pending, result)
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
        pending = find_holders(alias, new, calls, waiting, result)
        if not pending:
            break
    for i in pending:
        result[i] = (holder_before_scopes(alias, new, calls[i]).pk, False)
    return [result[i] for i in range(len(calls))]


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
