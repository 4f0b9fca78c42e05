"""Firing schedules (protocol 13).

What can interleave. Several workers see the same schedule due: `fire` takes a row only if nobody else has it locked and
its `version`, `fired_through` and `waiting_for` are those that the fire times were computed from, so one of them fires and
the others' plans are void. Somebody edits, pauses or resumes the schedule meanwhile: its version has risen, the plan is
void. The process dies or is stopped in the middle: one statement, so there is a run with its job and its advance, or
nothing, and no lock is left. The answer is lost: it is fired, and the next look shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db import transaction

from django_reliable_jobs.models import CronRun, Job
from django_reliable_jobs.store.key_holders import expire_holders, jobs_of
from django_reliable_jobs.store.new_job import Call, NewJob
from django_reliable_jobs.store.schedules.due import Due
from django_reliable_jobs.store.statements import run
from django_reliable_jobs.values.states import UNFINISHED

Outcome = CronRun.Outcome

#: Milliseconds that a fire waits for somebody's lock: see `schedules/fire.sql`.
PATIENCE = 500


@dataclass(slots=True)
class Run:
    """One run to record. `job` and its `call` are there for the outcome `enqueued`; the job's delay is its jitter."""

    scheduled_for: datetime
    outcome: CronRun.Outcome
    detail: str = ""
    skipped_through: datetime | None = None
    skipped_count: int = 0
    job: NewJob | None = None
    call: Call | None = None

    @property
    def unique_key(self) -> str | None:
        return None if self.call is None else self.call.unique_key


@dataclass(slots=True)
class Firing:
    """What is to become of a due schedule. `next_look` is its next fire time, or sooner while one waits."""

    due: Due
    fired_through: datetime
    next_look: datetime | None
    runs: list[Run] = field(default_factory=list)
    waiting_for: datetime | None = None
    pause: bool = False
    #: Unfinished jobs that are cancelled by this fire.
    cancel: tuple[int, ...] = ()

    def unique_keys(self) -> list[str]:
        """Of the jobs that it is to make."""
        return [each.unique_key for each in self.runs if each.unique_key is not None]

    def job_names(self) -> set[str]:
        """All the names of its job, or jobs."""
        return {name for each in self.runs if each.job is not None for name in each.job.names}


@dataclass(frozen=True, slots=True)
class Fired:
    """`schedules` that were fired, the jobs made (id, queue, priority), the workers of running jobs that it cancels."""

    schedules: set[int]
    jobs: list[tuple[int, str, int]]
    told: set[UUID]


def fire(alias: str, worker: UUID | None, firings: Sequence[Firing], *, manual: bool = False) -> Fired:
    """Fire schedules in one statement; those that somebody else has, or has changed, are left alone.

    `manual`: by a person, who keeps the schedule's place as it is. Raises `IntegrityError` when an unfinished job holds the
    unique key of one of the jobs, and `OperationalError` when somebody's lock was waited for in vain; nothing is written
    then. Outside of a transaction no lock outlives it, wherever this process stops.
    """
    runs = [(firing.due.id, each) for firing in firings for each in firing.runs]
    jobs = [each.job for _, each in runs]
    calls = [each.call for _, each in runs]
    stops = [(firing.due.id, job_id) for firing in firings for job_id in firing.cancel]
    params = {
        "worker": worker,
        "manual": manual,
        "patience": PATIENCE,
        "ids": [f.due.id for f in firings],
        "versions": [f.due.version for f in firings],
        "fired_throughs": [f.due.fired_through for f in firings],
        "waiting_fors": [f.due.waiting_for for f in firings],
        "new_fired_throughs": [f.fired_through for f in firings],
        "next_fires": [f.next_look for f in firings],
        "new_waiting_fors": [f.waiting_for for f in firings],
        "pauses": [f.pause for f in firings],
        "stop_ids": [schedule_id for schedule_id, _ in stops],
        "stop_jobs": [job_id for _, job_id in stops],
        "run_ids": [schedule_id for schedule_id, _ in runs],
        "scheduled_fors": [each.scheduled_for for _, each in runs],
        "outcomes": [each.outcome.value for _, each in runs],
        "details": [each.detail for _, each in runs],
        "skipped_throughs": [each.skipped_through for _, each in runs],
        "skipped_counts": [each.skipped_count for _, each in runs],
        "delays": [job and job.delay for job in jobs],
        "job_names": [job and job.name for job in jobs],
        "queues": [job and job.queue for job in jobs],
        "job_priorities": [job and job.priority for job in jobs],
        "job_args": [call and call.args for call in calls],
        "job_kwargs": [call and call.kwargs for call in calls],
        "max_attempts": [job and job.max_attempts for job in jobs],
        "timeouts": [job and job.timeout for job in jobs],
        "expires_ins": [job and job.expires_in for job in jobs],
        "unique_keys": [call and call.unique_key for call in calls],
        "until_starts": [bool(job and job.unique_until_start) for job in jobs],
        "scopes": [job and job.scope for job in jobs],
    }
    rows = run(alias, "schedules/fire", params)
    return Fired(
        {row[0] for row in rows if row[0] is not None},
        sorted(row[1:4] for row in rows if row[1] is not None),
        {row[4] for row in rows if row[4] is not None},
    )


def held_keys(alias: str, firing: Firing, *, of_any_job: bool) -> set[str]:
    """Those of its unique keys that unfinished jobs hold, other than the jobs that it cancels itself.

    `of_any_job`: see `key_holders.is_key_of_all`. Waiting holders that have expired give their key up first. Waits for a lock
    on such a row as long as the caller's bound.
    """
    keys, names = firing.unique_keys(), firing.job_names()
    expire_holders(alias, names, keys)
    holders = Job.objects.using(alias) if of_any_job else jobs_of(alias, names).filter(cancel_requested_at=None)
    held = holders.filter(unique_key__in=keys, status__in=UNFINISHED).values_list("unique_key", "id")
    return {key for key, job_id in held if key and job_id not in firing.cancel}


@contextmanager
def bounded(alias: str, seconds: float) -> Iterator[None]:
    """A transaction in which the server gives each statement so many seconds, and cancels it then (57014).

    It costs round trips, so it is for what had trouble before. A client that is stopped in it loses it as soon.
    """
    with transaction.atomic(using=alias):
        run(alias, "bound_statements", {"milliseconds": int(seconds * 1000)})
        yield
