"""The project's own foreign keys to `Job`.

The statements that delete jobs know this app's tables. A row of the project's that refers to a job would make them fail, the
whole batch, and again each time. So where there are such keys, their `on_delete` is honoured as if the job were deleted through
Django: PROTECT and RESTRICT keep it, CASCADE, SET_NULL and SET_DEFAULT are done first, in the same transaction. DO_NOTHING
keeps it too, as the database would refuse, unless the key has no constraint there.

What can interleave: somebody refers to a job that is being deleted. Django's keys are checked at the commit, with a lock
(`KEY SHARE`) on the job: it comes before ours (`FOR UPDATE`), and the reference is seen or the row is skipped; or it waits, and
that commit fails, as it must.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

from django.db import IntegrityError, connections, router, transaction
from django.db.models import DO_NOTHING, PROTECT, RESTRICT, Exists, ForeignKey, OuterRef, QuerySet, deletion

from django_reliable_jobs.models import Job
from django_reliable_jobs.store.settle_atomic import bound_idle
from django_reliable_jobs.store.statements import run

logger = logging.getLogger("django_reliable_jobs.store")

#: Seconds after which a process that is stopped in the middle of a deletion loses its locks.
IDLE = 10.0
#: How often one call looks for others in place of those that turn out to be kept.
ROUNDS = 10
_BY_THE_DATABASE: Any = getattr(deletion, "DatabaseOnDelete", ())  # Django 6.1


@cache
def foreign_keys(alias: str) -> tuple[ForeignKey[Any, Any], ...]:
    """Those of other apps' tables in this database, one-to-one and many-to-many ones included."""
    own = Job._meta.app_label
    found: list[ForeignKey[Any, Any]] = []
    for relation in Job._meta.get_fields(include_hidden=True):
        field: Any = getattr(relation, "field", None)
        if not relation.auto_created or relation.concrete or not (relation.one_to_many or relation.one_to_one):
            continue
        model = field.model
        if model._meta.app_label == own or not model._meta.managed or not router.allow_migrate_model(alias, model):
            continue
        on_delete = field.remote_field.on_delete
        if not isinstance(on_delete, _BY_THE_DATABASE) and (on_delete is not DO_NOTHING or field.db_constraint):
            found.append(field)
    return tuple(found)


def delete(alias: str, jobs: QuerySet[Job], limit: int | None = None, *, wait: bool = True) -> list[int]:
    """Delete those of `jobs`, in their order and up to `limit`, that no foreign key keeps; their ids.

    Without `wait`, rows that somebody has locked are left out. In a caller's transaction nothing is set that would outlive this
    call, and keys that the database checks at the commit are checked at the caller's.
    """
    for key in foreign_keys(alias):
        if _keeps(key):
            referring = key.model._base_manager.using(alias).filter(**{key.name: OuterRef(key.target_field.attname)})
            jobs = jobs.exclude(Exists(referring))
    ours = not connections[alias].in_atomic_block
    deleted: list[int] = []
    kept: dict[int, IntegrityError] = {}
    with transaction.atomic(using=alias):
        if ours:
            bound_idle(alias, IDLE)
        jobs = jobs.select_for_update(of=("self",), skip_locked=not wait)
        for _ in range(ROUNDS):
            left = None if limit is None else limit - len(deleted)
            ids = list(jobs.exclude(pk__in=list(kept)).values_list("pk", flat=True)[:left])
            found = len(kept)
            deleted += _delete_apart(alias, ids, kept, check=ours)
            if len(kept) == found:
                break  # else those that are kept must not stand in for others
    if kept:
        job_id, why = next(iter(kept.items()))
        logger.warning("%d jobs cannot be deleted; job %s: %s", len(kept), job_id, why)
    return deleted


def _delete_apart(alias: str, job_ids: Sequence[int], kept: dict[int, IntegrityError], *, check: bool) -> list[int]:
    """Together if that goes; in halves where something that would be deleted with a job is protected in its turn."""
    if not job_ids:
        return []
    try:
        with transaction.atomic(using=alias):
            return _delete(alias, job_ids, check=check)
    except IntegrityError as error:
        if len(job_ids) == 1:
            kept[job_ids[0]] = error
            return []
    middle = len(job_ids) // 2
    return [
        job_id
        for half in (job_ids[:middle], job_ids[middle:])
        for job_id in _delete_apart(alias, half, kept, check=check)
    ]


def _delete(alias: str, job_ids: Sequence[int], *, check: bool) -> list[int]:
    collector = deletion.Collector(using=alias)
    for key in foreign_keys(alias):
        if not _keeps(key):
            referring = key.model._base_manager.using(alias).filter(**{f"{key.name}__pk__in": job_ids})
            on_delete: Any = key.remote_field.on_delete
            if referring.exists():
                on_delete(collector, key, referring, alias)
    collector.delete()
    deleted = [job_id for (job_id,) in run(alias, "delete", {"job_ids": list(job_ids)})]
    if check:
        connections[
            alias
        ].check_constraints()  # Django's are deferred: what is wrong would come out at the commit of all
    return deleted


def _keeps(key: ForeignKey[Any, Any]) -> bool:
    return key.remote_field.on_delete in (PROTECT, RESTRICT, DO_NOTHING)
