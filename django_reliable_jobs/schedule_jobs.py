"""The runs of a schedule's fire times, each with the job that it enqueues. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django_reliable_jobs import enqueue, payload, redaction
from django_reliable_jobs.definition import JobDefinition
from django_reliable_jobs.schedules import Timetable, jitter
from django_reliable_jobs.store.schedule_due import Due
from django_reliable_jobs.store.schedules import Outcome, Run
from django_reliable_jobs.text import safe_text

KEY_IS_HELD = "an unfinished job holds the unique key"


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
            made = enqueue.scheduled_job(job, due.args, due.kwargs, fire_time, delay)
        except Exception as error:  # noqa: BLE001 - the project's `unique_key` callable: this fire time gets no job
            runs.append(Run(fire_time, Outcome.ERROR, _told(error, due, job)))
            continue
        if made.unique_key in keys:
            runs.append(skipped(fire_time, KEY_IS_HELD))
            continue
        if made.unique_key is not None:
            keys.add(made.unique_key)
        runs.append(Run(fire_time, Outcome.ENQUEUED, job=made))
    return runs


def _told(error: Exception, due: Due, job: JobDefinition) -> str:
    text = safe_text(f"{type(error).__name__}: {error}", 1000)
    if not job.redact:
        return text
    return redaction.scrub(text, redaction.secrets(job, payload.loads(due.args), payload.loads(due.kwargs)))


def without_jobs(runs: Iterable[Run]) -> list[Run]:
    """The same fire times when an unfinished job holds the unique key: they are taken, and nothing is enqueued."""
    return [each if each.job is None else skipped(each.scheduled_for, KEY_IS_HELD) for each in runs]


def skipped(fire_time: datetime, why: str = "") -> Run:
    """The run of a fire time that was skipped for an unfinished job."""
    return Run(fire_time, Outcome.SKIPPED_OVERLAP, why, skipped_through=fire_time, skipped_count=1)
