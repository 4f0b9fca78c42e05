"""The runs of a schedule's fire times, each with the job that it enqueues, and the fire of one schedule by itself."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, connections, transaction

from django_reliable_jobs import enqueue, payload
from django_reliable_jobs.definitions import redaction
from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.schedules import Timetable, jitter
from django_reliable_jobs.store.key_holders import is_key_of_all
from django_reliable_jobs.store.schedules import fire as store
from django_reliable_jobs.store.schedules.due import Due
from django_reliable_jobs.store.schedules.fire import Fired, Firing, Outcome, Run
from django_reliable_jobs.values.error_text import safe_text

KEY_IS_HELD = "an unfinished job holds the unique key"
#: Runs that one statement records: a schedule that has more to catch up on goes on with the next statement.
MOST_RUNS = 500
#: Tries of one fire while the holders of its unique keys change.
ROUNDS = 5


def runs_with_jobs(
    due: Due, job: JobDefinition, fire_times: Iterable[datetime], timetable: Timetable | None = None
) -> list[Run]:
    """A run for each fire time, with its job; delayed by the schedule's jitter if its `timetable` is given.

    Of several with one unique key the first gets it. Raises ValueError for arguments that are none.
    """
    if not due.args.startswith("[") or not due.kwargs.startswith("{"):  # jsonb has no spaces around
        raise ValueError("args must be a JSON array and kwargs a JSON object")
    runs: list[Run] = []
    keys: set[str] = set()
    for fire_time in fire_times:
        delay = 0.0
        if due.jitter and timetable is not None:
            spread = jitter(due.name, fire_time, due.jitter, timetable.next_after(fire_time))
            delay = max(0.0, (fire_time + spread - due.now).total_seconds())
        try:
            made, call = enqueue.scheduled_job(job, due.args, due.kwargs, fire_time, delay)
        except Exception as error:  # noqa: BLE001 - the project's `unique_key` callable: this fire time gets no job
            runs.append(Run(fire_time, Outcome.ERROR, _told(error, due, job)))
            continue
        if call.unique_key in keys:
            runs.append(skipped(fire_time, KEY_IS_HELD))
            continue
        if call.unique_key is not None:
            keys.add(call.unique_key)
        runs.append(Run(fire_time, Outcome.ENQUEUED, job=made, call=call))
    return runs


def _told(error: Exception, due: Due, job: JobDefinition) -> str:
    text = safe_text(f"{type(error).__name__}: {error}", 1000)
    if not job.redact:
        return text
    return redaction.scrub(text, redaction.secrets(job, payload.loads(due.args), payload.loads(due.kwargs)))


def fire_alone(alias: str, worker: UUID | None, firing: Firing, *, manual: bool = False) -> Fired:
    """Fire one schedule. Those of its fire times whose unique keys unfinished jobs hold are taken without a job.

    `firing.runs` says afterwards which. Raises what `store.fire` raises, IntegrityError when it is about something else or
    holders come and go all the time. In a transaction, which stays usable for another try.
    """
    for _ in range(ROUNDS - 1):
        try:
            with transaction.atomic(using=alias) if connections[alias].in_atomic_block else nullcontext():
                return store.fire(alias, worker, [firing], manual=manual)
        except IntegrityError as error:
            if not firing.unique_keys():
                raise
            of_any_job = is_key_of_all(error)
        held = store.held_keys(alias, firing, of_any_job=of_any_job)
        firing.runs = [
            skipped(each.scheduled_for, KEY_IS_HELD) if each.unique_key in held else each for each in firing.runs
        ]
    return store.fire(alias, worker, [firing], manual=manual)


def skipped(fire_time: datetime, why: str = "", *, through: datetime | None = None, count: int = 1) -> Run:
    """The run of a fire time, or of `count` from it to `through`, that was skipped for an unfinished job."""
    return Run(fire_time, Outcome.SKIPPED_OVERLAP, why, skipped_through=through or fire_time, skipped_count=count)
