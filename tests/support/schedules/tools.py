"""What tests of schedules do in this process: make schedules, play the worker, look at the runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from django.db import connection
from django.utils import timezone

from django_reliable_jobs.control.schedules import save_schedule
from django_reliable_jobs.models import CronRun, CronSchedule, Job
from django_reliable_jobs.worker.maintenance.scheduler import Scheduler

NOOP = "probes.noop"


def schedule(name: str = "report", expression: str = "0 * * * *", job: str = NOOP, **options: Any) -> CronSchedule:
    """A schedule that people own; every hour unless it says otherwise."""
    return save_schedule(name, job, expression, **options)


def worker() -> Scheduler:
    return Scheduler("default", uuid4())


def tick(scheduler: Scheduler | None = None) -> float:
    """Tick until there is nothing more to do now; the seconds until the next look."""
    scheduler = scheduler or worker()
    for _ in range(1000):
        pause = scheduler.tick()
        if pause > 0:
            return pause
    raise AssertionError("it ticks for ever")


def runs(name: str = "report", **filters: Any) -> list[CronRun]:
    return list(CronRun.objects.filter(name=name, **filters).order_by("scheduled_for"))


def fired(name: str = "report") -> list[str]:
    """The fire times that got a job, as "MM-DD HH:MM" in UTC."""
    return [short(run.scheduled_for) for run in runs(name, outcome="enqueued")]


def outcomes(name: str = "report") -> list[tuple[str, str]]:
    return [(short(run.scheduled_for), run.outcome) for run in runs(name)]


def short(moment: datetime) -> str:
    aware = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
    return f"{aware.astimezone(UTC):%m-%d %H:%M}"


def row(name: str = "report") -> CronSchedule:
    return CronSchedule.objects.get(name=name)


def job_of(name: str, scheduled_for: datetime) -> Job:
    run = CronRun.objects.get(name=name, scheduled_for=scheduled_for)
    assert run.job is not None
    return run.job


def set_status(job: Job | None, status: str) -> None:
    """As a worker would leave it."""
    assert job is not None
    changes: dict[str, Any] = {"status": status}
    if status == "RUNNING":
        changes |= {"locked_by": uuid4(), "locked_until": timezone.now(), "fencing_token": 1}
    elif status in ("DONE", "DEAD", "CANCELLED"):
        changes |= {"finished_at": timezone.now()}
    Job.objects.filter(pk=job.pk).update(**changes)


def sql(statement: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params or None)
        return cursor.fetchall() if cursor.description else []
