"""Fires that a person asks for: a schedule's job now, and those of past fire times that have none."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from django.db import transaction
from django.utils import timezone

from django_reliable_jobs import conf
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.definitions.schedule import MAX_NAME
from django_reliable_jobs.errors import AlreadyEnqueued, ReliableJobsError
from django_reliable_jobs.firing.runs import MOST_RUNS, fire_alone, runs_with_jobs
from django_reliable_jobs.schedules import as_timetable, fires
from django_reliable_jobs.store import notify
from django_reliable_jobs.store.schedules import due as schedule_due
from django_reliable_jobs.store.schedules import skipped as skipped_runs
from django_reliable_jobs.store.schedules.due import Due
from django_reliable_jobs.store.schedules.fire import Fired, Firing, Run
from django_reliable_jobs.values.moments import in_calendar
from django_reliable_jobs.values.names import check_text

T = TypeVar("T")

#: Fire times that one backfill may make up for.
MAX_BACKFILL = 10_000
#: For how many seconds a verb tries while others fire or change the schedule, and the pause between two tries.
PATIENCE = 10.0
PAUSE = 0.02


class UnknownSchedule(ReliableJobsError, LookupError):
    """There is no schedule of this name."""


def run_schedule(name: str, *, using: str | None = None) -> int:
    """Enqueue the schedule's job now, paused or not, whatever of it is unfinished; the job's id.

    Its fire time is this moment. Raises `UnknownSchedule`, `UnknownJob`, and `AlreadyEnqueued` when an unfinished job
    holds the job's unique key.
    """
    alias = using or conf.current().database

    def run(due: Due) -> int | None:
        [each] = runs_with_jobs(due, registry.find(due.job_name), [due.now])
        if each.job is None:
            raise ReliableJobsError(f"schedule {name}: {each.detail}")
        fired = fire_alone(alias, None, firing := Firing(due, due.fired_through, None, [each]), manual=True)
        if firing.runs[0].job is None:
            raise AlreadyEnqueued(f"schedule {name}: an unfinished job holds its job's unique key.")
        notify.wake(alias, {notify.work_payload(queue, priority) for _, queue, priority in fired.jobs})
        return fired.jobs[0][0] if fired.jobs else None

    return patiently(alias, name, run)


def backfill(name: str, start: datetime, end: datetime, *, using: str | None = None) -> list[int]:
    """Make up for the fire times in (`start`, `end`] that have no job yet; the jobs' ids, in order.

    Those that were skipped count as not having one. Of several with one unique key only the first can be enqueued. Raises
    `ValueError` for naive datetimes, an `end` in the future and more than `MAX_BACKFILL` fire times, `UnknownSchedule`,
    `UnknownJob`, and `ScheduleError` for a schedule that cannot be computed.
    """
    alias = using or conf.current().database
    for each in (start, end):
        if not isinstance(each, datetime):
            raise TypeError(f"backfill takes datetimes, not {type(each).__name__}.")
    if timezone.is_naive(start) or timezone.is_naive(end):
        raise ValueError("backfill takes aware datetimes.")
    start, end = in_calendar(start, "start"), in_calendar(end, "end")

    def run(due: Due) -> list[int] | None:
        if end > due.now:
            raise ValueError(f"backfill ends in the future ({end}); the schedule itself will fire then.")
        timetable, rules = as_timetable(due.expression, due.timezone), due.rules()
        first, last = rules.interval(start, end)
        if first < last and timetable.count(first, last) > MAX_BACKFILL:
            raise ValueError(f"there are more than {MAX_BACKFILL} fire times from {start} to {end}; take less of them.")
        taken = skipped_runs.with_a_job(alias, name, start, end)
        times = [moment for moment in fires(timetable, rules, start, end) if moment not in taken]
        runs = runs_with_jobs(due, registry.find(due.job_name), times)
        skipped_runs.forget(alias, name, timetable, start, end)
        made = _fire_all(alias, due, runs)
        return None if made is None else sorted(job_id for fired in made for job_id, _, _ in fired.jobs)

    return patiently(alias, name, run)


def check_name(name: object) -> None:
    """Raises TypeError for what is no name (a schedule's row, an id), UnknownSchedule for one that no schedule can have."""
    try:
        check_text(name, "a schedule's name", MAX_NAME)
    except ValueError as error:
        raise UnknownSchedule(f"there is no schedule named {name!r:.300}: {error}") from None


def patiently(alias: str, name: str, attempt: Callable[[Due], T | None]) -> T:
    """The first result that is not None: then somebody else was at the schedule, and nothing of the attempt stays."""
    check_name(name)
    until = time.monotonic() + PATIENCE
    while True:
        with transaction.atomic(using=alias):
            due = schedule_due.find(alias, name)
            if due is None:
                raise UnknownSchedule(f"there is no schedule named {name!r}.")
            result = attempt(due)
            if result is None:
                transaction.set_rollback(True, using=alias)
        if result is not None:
            return result
        if time.monotonic() > until:
            raise ReliableJobsError(f"schedule {name} is being fired or changed all the time; try again.")
        time.sleep(PAUSE)


def _fire_all(alias: str, due: Due, runs: list[Run]) -> list[Fired] | None:
    """In statements of a bounded size. None: somebody else has the schedule just now, or has changed it."""
    made: list[Fired] = []
    for start in range(0, len(runs), MOST_RUNS):
        firing = Firing(due, due.fired_through, None, runs[start : start + MOST_RUNS])
        fired = fire_alone(alias, None, firing, manual=True)
        if not fired.schedules:
            return None
        made.append(fired)
    notify.wake(alias, {notify.work_payload(queue, priority) for fired in made for _, queue, priority in fired.jobs})
    return made
