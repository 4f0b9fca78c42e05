"""Enqueue: checks the call, encodes it, and hands it to the store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models.base import ModelState

from django_reliable_jobs import conf, payload
from django_reliable_jobs.definitions import redaction
from django_reliable_jobs.definitions.job import BoundJob, JobDefinition, Key, Options, Unset
from django_reliable_jobs.definitions.validate import check_max_attempts, check_priority, check_queue
from django_reliable_jobs.errors import AlreadyEnqueued, PayloadError
from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.store import notify
from django_reliable_jobs.store.insert import CHUNK, Inserted, insert, insert_many
from django_reliable_jobs.store.new_job import Call, NewJob
from django_reliable_jobs.values.durations import optional_seconds, seconds
from django_reliable_jobs.values.moments import moment

MAX_KEY = 255


def enqueue(job: BoundJob, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
    alias, new = _new_job(job)
    call = _call(job, args, kwargs)
    replace = job.options.if_exists == "replace"
    inserted = insert(alias, new, call, replace=replace)
    if inserted.holder is not None:
        if job.options.if_exists == "raise":
            raise AlreadyEnqueued(_clash(job, call, inserted.holder), inserted.holder)
        inserted.holder.created = False
        if replace and inserted.holder.status != JobStatus.RUNNING:
            _wake(alias, new)
        return inserted.holder
    _wake(alias, new)
    return _made(alias, new, call, inserted)


def enqueue_many(job: BoundJob, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[int]:
    if job.options.if_exists == "replace":
        raise TypeError('enqueue_many() does not take if_exists="replace"; enqueue those one by one.')
    alias, new = _new_job(job)
    encoded = [_call(job, *_split(job, call, i)) for i, call in enumerate(calls)]
    if not encoded:
        return []
    if len(encoded) <= CHUNK and job.options.if_exists != "raise":
        rows = insert_many(alias, new, encoded)
    else:
        with transaction.atomic(using=alias):
            rows = insert_many(alias, new, encoded)
            if job.options.if_exists == "raise":
                for call, (job_id, created) in zip(encoded, rows, strict=True):
                    if not created:
                        holder = Job.objects.using(alias).get(pk=job_id)
                        raise AlreadyEnqueued(_clash(job, call, holder), holder)
    _wake(alias, new)
    return [job_id for job_id, _ in rows]


def scheduled_job(
    definition: JobDefinition, args: str, kwargs: str, scheduled_for: datetime, delay: float = 0.0
) -> tuple[NewJob, Call]:
    """The job of a schedule's run; `args` and `kwargs` are the schedule's JSON texts, `delay` is in seconds.

    Raises whatever a callable `unique_key` raises; it gets the fire time where the handler does.
    """
    _, new = _new_job(definition.bound())
    unique_key = None
    if definition.unique_key is not None:
        positional = payload.loads(args)
        named = definition.with_fire_time(positional, payload.loads(kwargs), scheduled_for)
        unique_key = _key(definition.unique_key, "unique_key", tuple(positional), named, definition)
    new.delay = delay
    return new, Call(args, kwargs, unique_key)


def _split(job: BoundJob, call: Any, index: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(call, Mapping):
        return (), dict(call)
    if isinstance(call, (list, tuple)):
        return tuple(call), {}
    raise TypeError(
        f"{job.definition.name}: call {index} of enqueue_many is a {type(call).__name__}; pass a sequence of positional"
        f" arguments, such as ({redaction.HIDDEN if job.definition.redact else repr(call):.40},), or a mapping of named"
        " ones."
    )


def _call(job: BoundJob, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    d = job.definition
    d.check_arguments(args, kwargs)
    try:
        texts = payload.dumps_call(args, kwargs, d.parameter_names, conf.current().max_payload_bytes)
    except PayloadError as error:
        raise PayloadError(f"{d.name}: {error}") from None
    unique_key = d.unique_key if isinstance(job.options.unique_key, Unset) else job.options.unique_key
    return Call(
        *texts,
        _key(unique_key, "unique_key", args, kwargs, d),
        _key(job.options.idempotency_key, "idempotency_key", args, kwargs, d),
    )


def _key(key: Key, what: str, args: tuple[Any, ...], kwargs: dict[str, Any], d: JobDefinition) -> str | None:
    value = key(*args, **kwargs) if callable(key) else key
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY:
        shown = f"a {type(value).__name__}" if d.redact else f"{value!r:.300}"  # it may be made of what is hidden
        raise ValueError(f"{what} is a string of 1 to {MAX_KEY} characters or None, not {shown}.")
    try:
        payload.dumps(value, what)
    except PayloadError as error:
        raise PayloadError(str(error)) from None
    return value


def _new_job(job: BoundJob) -> tuple[str, NewJob]:
    d, o, current = job.definition, job.options, conf.current()
    queue = d.queue if isinstance(o.queue, Unset) else check_queue(o.queue)
    if o.if_exists not in ("keep", "replace", "raise"):
        raise ValueError(f'if_exists is "keep", "replace" or "raise", not {o.if_exists!r}.')
    if not isinstance(o.concurrency_key, Unset):
        raise ValueError("this version does not enforce limits per key, so it does not take concurrency_key.")
    until = d.unique_until if isinstance(o.unique_until, Unset) else o.unique_until
    if until not in ("finish", "start"):
        raise ValueError(f'unique_until is "finish" or "start", not {until!r}.')
    expires = d.expires if isinstance(o.expires, Unset) else o.expires
    expires_at = _moment(expires, "expires") if isinstance(expires, datetime) else None
    return o.database or current.database, NewJob(
        name=d.name,
        queue=queue,
        priority=d.priority if isinstance(o.priority, Unset) else check_priority(o.priority),
        run_at=None if o.run_at is None else _moment(o.run_at, "run_at"),
        delay=0.0 if o.delay is None else seconds(o.delay, "delay"),
        expires_at=expires_at,
        expires_in=None if expires_at else optional_seconds(expires, "expires"),  # type: ignore[arg-type]
        max_attempts=_first_given(o.max_attempts, d.max_attempts, current.max_attempts),
        timeout=_timeout(o, d, current.timeout),
        unique_until_start=until == "start",
        scope=d.scope,
        names=(d.name, *d.aliases),
    )


def _first_given(asked: int | Unset | None, defined: int | Unset | None, default: int | None) -> int | None:
    if not isinstance(asked, Unset):
        return check_max_attempts(asked)
    return default if isinstance(defined, Unset) else defined


def _timeout(o: Options, d: JobDefinition, default: float | None) -> float | None:
    if not isinstance(o.timeout, Unset):
        return optional_seconds(o.timeout, "timeout")
    return default if isinstance(d.timeout, Unset) else d.timeout


def _moment(value: datetime, what: str) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError(f"{what} is a datetime, not {value!r}; a number of seconds or a timedelta goes into delay.")
    return moment(value, what)


def _wake(alias: str, new: NewJob) -> None:
    if new.run_at is None and new.delay == 0:
        notify.wake(alias, [notify.work_payload(new.queue, new.priority)])


#: A new job's columns in the order of the table, with the values that most jobs have.
_NEW = {field.attname: None if callable(field.default) else field.get_default() for field in Job._meta.concrete_fields}


def _made(alias: str, new: NewJob, call: Call, inserted: Inserted) -> Job:
    values = _NEW | {
        "id": inserted.id, "name": new.name, "queue": new.queue, "args": json.loads(call.args),
        "kwargs": json.loads(call.kwargs), "priority": new.priority, "run_at": inserted.run_at,
        "expires_at": inserted.expires_at, "max_attempts": new.max_attempts, "timeout": new.timeout,
        "unique_key": call.unique_key, "unique_until_start": new.unique_until_start, "scope": new.scope,
        "idempotency_key": call.idempotency_key, "created_at": inserted.created_at,
    }  # fmt: skip
    # As a row that was read, but without the signals of one: making it would be a quarter of what the enqueue costs in Python.
    job = Job.__new__(Job)
    job.__dict__.update(values, _state=ModelState(), created=True)
    job._state.db, job._state.adding = alias, False
    return job


def _clash(job: BoundJob, call: Call, holder: Job) -> str:
    key = call.idempotency_key if holder.idempotency_key == call.idempotency_key is not None else call.unique_key
    shown = "" if job.definition.redact else f" {key!r}"
    return f"{job.definition.name}: job {holder.pk} ({holder.status}) holds the key{shown} already."
