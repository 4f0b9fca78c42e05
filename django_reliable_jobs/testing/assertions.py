"""What a test says of the jobs that were enqueued, whether or not they have run since."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db.models import Max

from django_reliable_jobs import conf, payload
from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.models import Job


class CapturedJobs(list[Job]):
    """The jobs that were enqueued in a `captured_jobs()` block, by id; filled when it ends."""


@contextmanager
def captured_jobs(database: str | None = None) -> Iterator[CapturedJobs]:
    """The jobs that the block enqueues, seen by this connection; those whose transaction was rolled back are not there."""
    jobs = Job.objects.using(database or conf.current().database)
    last = jobs.aggregate(last=Max("pk"))["last"] or 0
    found = CapturedJobs()
    yield found
    found.extend(jobs.filter(pk__gt=last).order_by("pk"))


def assert_enqueued(
    job: JobDefinition | str,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    run_at: datetime | None = None,
    count: int | None = None,
    database: str | None = None,
    **columns: Any,
) -> list[Job]:
    """Fail unless the job was enqueued, with these `args` and `kwargs` if given, for `run_at`, `count` times; give the rows.

    `columns` are lookups of `Job`: `queue="mail"`, `priority__gt=0`, `status=JobStatus.QUEUED`.
    """
    found, asked = _find(job, args, kwargs, run_at, database, columns)
    if (not found) if count is None else len(found) != count:
        times = "" if count is None else f" {count} times, but {len(found)} times"
        raise AssertionError(f"{asked} was not enqueued{times}. {_there(job, database)}")
    return found


def assert_not_enqueued(
    job: JobDefinition | str,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    run_at: datetime | None = None,
    database: str | None = None,
    **columns: Any,
) -> None:
    """Fail if the job was enqueued; the arguments are those of `assert_enqueued`."""
    found, asked = _find(job, args, kwargs, run_at, database, columns)
    if found:
        raise AssertionError(f"{asked} was enqueued: {', '.join(f'#{one.pk} ({one.status})' for one in found[:10])}.")


def _find(
    job: JobDefinition | str, args: Any, kwargs: Any, run_at: datetime | None, database: str | None, columns: Any
) -> tuple[list[Job], str]:
    jobs = Job.objects.using(database or conf.current().database).filter(name__in=_names(job), **columns).order_by("pk")
    if run_at is not None:
        jobs = jobs.filter(run_at=run_at)
    # Encoded as an enqueue does it: the arguments of the test and those of the row are compared as payloads.
    texts = payload.dumps_call(args or (), kwargs or {}, (), conf.current().max_payload_bytes)
    positional, named = map(json.loads, texts)
    found = [
        one for one in jobs if (args is None or one.args == positional) and (kwargs is None or one.kwargs == named)
    ]
    given = {"args": args, "kwargs": kwargs, "run_at": run_at}
    said = [f"{name}={value!r:.200}" for name, value in given.items() if value is not None]
    said += [f"{name}={value!r:.200}" for name, value in columns.items()]
    return found, f"{_names(job)[0]}{' with ' if said else ''}{', '.join(said)}"


def _names(job: JobDefinition | str) -> list[str]:
    return [job] if isinstance(job, str) else [job.name, *job.aliases]


def _there(job: JobDefinition | str, database: str | None) -> str:
    rows = Job.objects.using(database or conf.current().database).filter(name__in=_names(job)).order_by("pk")[:5]
    said = ", ".join(f"#{one.pk} args={one.args!r:.200} run_at={one.run_at}" for one in rows)
    return f"Enqueued of it: {said or 'none'}."
