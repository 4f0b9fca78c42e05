"""What tests ask the tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connection

from django_reliable_jobs.models import Job, JobAttempt, JobStatus
from tests.support.fleet import PATIENCE, wait_until
from tests.support.probes.models import Mark

FINISHED = (JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED)


def fresh(job: Job | int) -> Job:
    return Job.objects.get(pk=job if isinstance(job, int) else job.pk)


def described(jobs: Iterable[Job | int]) -> str:
    ids = [job if isinstance(job, int) else job.pk for job in jobs]
    lines = [
        f"#{j.pk} {j.name} {j.args} {j.status} {j.reason!r} attempts {j.attempts}/{j.max_attempts} losses {j.losses}"
        for j in Job.objects.filter(pk__in=ids).exclude(status=JobStatus.DONE).order_by("pk")[:20]
    ]
    return "the jobs to come to an end:\n" + "\n".join(lines)


def reached(job: Job | int, *statuses: str, timeout: float = PATIENCE) -> Job:
    """Wait until the job is in one of `statuses`, and return it."""
    found = wait_until(
        lambda: Job.objects.filter(pk=job if isinstance(job, int) else job.pk, status__in=statuses).first(),
        lambda: f"{statuses}; {described([job])}",
        timeout,
    )
    assert found is not None
    return found


def ended(job: Job | int, timeout: float = PATIENCE) -> Job:
    return reached(job, *FINISHED, timeout=timeout)


def all_done(jobs: Iterable[Job | int], timeout: float = PATIENCE) -> None:
    """Wait until all of them are DONE."""
    ids = [job if isinstance(job, int) else job.pk for job in jobs]
    done = Job.objects.filter(pk__in=ids, status=JobStatus.DONE)
    wait_until(lambda: done.count() == len(ids), lambda: described(ids), timeout)


def errors(job: Job | int) -> list[JobAttempt]:
    """The attempts that did not go well, in order."""
    return list(JobAttempt.objects.filter(job_id=job if isinstance(job, int) else job.pk).order_by("fencing_token"))


def marks(job: Job | int) -> list[str]:
    """What the job's handler has said, in order."""
    found = Mark.objects.filter(job_id=job if isinstance(job, int) else job.pk)
    return list(found.order_by("pk").values_list("label", flat=True))


def marked(label: str, count: int = 1, timeout: float = PATIENCE) -> list[Mark]:
    """Wait until `count` handlers have said `label`."""
    found = Mark.objects.filter(label=label).order_by("pk")
    wait_until(lambda: found.count() >= count, f"{count} times the mark {label!r}", timeout)
    return list(found)


def sql(statement: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def backends(like: str = "%") -> list[tuple[int, str]]:
    """(pid, application name) of the other connections to the test database."""
    return sql(
        "SELECT pid, application_name FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND application_name LIKE %s"
        " AND application_name <> 'reliable_jobs guard'",  # other tests' guards in this very process
        like,
    )


def terminate(like: str = "%") -> int:
    """`pg_terminate_backend` for them; how many."""
    return len([pid for pid, _ in backends(like) if sql("SELECT pg_terminate_backend(%s)", pid)])
