"""What people and code do to jobs from outside: cancel, retry, run now, change the priority, delete, pause a queue.

Each verb takes a `Job`, an id, a list (or another collection) of either, or a queryset of `Job`, and refuses anything else with
a TypeError; it checks the status at the moment of writing, and says what it
changed: a row that is in another status by then is counted, never overwritten. The admin and the commands call these too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from django.db.models import Manager, QuerySet
from django.utils.translation import gettext as _

from django_reliable_jobs import conf
from django_reliable_jobs.definitions.validate import check_priority, check_queue
from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.store import control as control_store
from django_reliable_jobs.store import notify
from django_reliable_jobs.values.states import CLAIMABLE, FINISHED, RETRYABLE, UNFINISHED

Jobs = Job | int | Iterable[Job | int] | QuerySet[Job]

#: Jobs in one statement; a larger queryset is done in several, so that no lock is held for long.
BATCH = 500


@dataclass(slots=True)
class Report:
    """What a verb did: ids that it changed, and those it left alone, each with the reason. Truthy if it changed any."""

    changed: list[int] = field(default_factory=list)
    skipped: dict[int, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.changed)


def cancel(jobs: Jobs, *, using: str | None = None) -> Report:
    """Cancel waiting jobs at once, and ask the workers of running ones to stop them.

    A running handler gets `JobCancelled` from `ctx.check()` or at its next await; the job is CANCELLED when it stops.
    Joins the caller's transaction.
    """
    report = Report()
    for alias, ids in _batches(jobs, using, UNFINISHED):
        done = control_store.cancel(alias, ids)
        workers = {one.worker for one in done if one.status == JobStatus.RUNNING}
        notify.wake(alias, [notify.cancel_payload(worker) for worker in workers])
        _account(report, alias, ids, [one.id for one in done], _("it has finished"))
    return report


def retry(jobs: Jobs, *, using: str | None = None) -> Report:
    """Queue DEAD, FAILED or CANCELLED jobs again, at once and with all their attempts.

    A job whose `unique_key` an unfinished job has by now is skipped, and the report names that job.
    """
    report = Report()
    for alias, ids in _batches(jobs, using, RETRYABLE):
        woken = control_store.retry_many(alias, ids)
        _account(report, alias, ids, [one.id for one in woken], _("it is not DEAD, FAILED or CANCELLED"))
        if len(woken) < len(ids):
            for job_id, holder in control_store.retry_refused(alias, list(report.skipped.keys() & set(ids))).items():
                # Nobody holds its key: somebody did at that moment, or has changed the job since.
                result = control_store.retry(alias, job_id) if holder is None else control_store.Clash(job_id, holder)
                if isinstance(result, control_store.Woken):
                    woken.append(result)
                    report.changed.append(job_id)
                    del report.skipped[job_id]
                elif result is not None:
                    report.skipped[job_id] = _("job %(id)s holds its unique key") % {"id": result.holder}
        _wake(alias, woken)
    return report


def run_now(jobs: Jobs, *, using: str | None = None) -> Report:
    """Make waiting jobs due; status and attempts stay as they are."""
    report = Report()
    for alias, ids in _batches(jobs, using, CLAIMABLE):
        woken = control_store.run_now(alias, ids)
        _account(report, alias, ids, [one.id for one in woken], _("it is not QUEUED or FAILED"))
        _wake(alias, woken)
    return report


def set_priority(jobs: Jobs, priority: int, *, using: str | None = None) -> Report:
    """Give waiting jobs another priority (-100..100). Raises `ValueError` for a number outside."""
    check_priority(priority)
    report = Report()
    for alias, ids in _batches(jobs, using, CLAIMABLE):
        changed = control_store.set_priority(alias, ids, priority)
        _account(report, alias, ids, [one.id for one in changed], _("it is not QUEUED or FAILED"))
        _wake(alias, changed)
    return report


def delete(jobs: Jobs, *, using: str | None = None) -> Report:
    """Delete jobs in any status but RUNNING, with their attempts and checkpoints. What waits will not run.

    Foreign keys of the project's to `Job` are honoured: one whose `on_delete` is PROTECT or RESTRICT keeps its job.
    """
    report = Report()
    for alias, ids in _batches(jobs, using, (*CLAIMABLE, *FINISHED)):
        _account(report, alias, ids, control_store.delete(alias, ids), _("it is running, or kept by a foreign key"))
    return report


def pause_queue(queue: str, *, using: str | None = None) -> bool:
    """No worker claims from the queue any more, fleet-wide and over restarts; running jobs go on. False: it was so."""
    return control_store.pause(using or conf.current().database, check_queue(queue), True)


def resume_queue(queue: str, *, using: str | None = None) -> bool:
    """Claims go on. False: it was not paused."""
    alias = using or conf.current().database
    changed = control_store.pause(alias, check_queue(queue), False)
    notify.wake(alias, [notify.WORK_ANYWHERE])
    return changed


def _batches(jobs: Jobs, using: str | None, statuses: tuple[JobStatus, ...]) -> Iterator[tuple[str, list[int]]]:
    """(alias, ids) a batch. A queryset is walked by id, and only over the statuses that the verb can change."""
    if isinstance(jobs, QuerySet):
        yield from _of_queryset(_of_jobs(jobs), using, statuses)
        return
    if isinstance(jobs, (str, bytes, bytearray, memoryview, Mapping, Manager)) or not isinstance(
        jobs, (Job, int, Iterable)
    ):
        raise TypeError(f"{_TAKES}, not {type(jobs).__name__}.")
    by_alias: defaultdict[str, set[int]] = defaultdict(set)
    for one in (jobs,) if isinstance(jobs, (Job, int)) else jobs:
        alias = using or (one._state.db if isinstance(one, Job) else None) or conf.current().database
        by_alias[alias].add(_id(one))
    for alias, ids in by_alias.items():
        unique = sorted(ids)
        for start in range(0, len(unique), BATCH):
            yield alias, unique[start : start + BATCH]


_TAKES = "control takes a Job, an id, a list of either or a queryset of Job"


def _id(one: object) -> int:
    """Ids are never guessed: "12" is two characters, True is no number, and another model's 12 is another row."""
    value = one.pk if isinstance(one, Job) else one
    if isinstance(one, Job) and value is None:
        raise ValueError("this Job is not in the table: it has no id.")
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{_TAKES}, not {type(one).__name__}.")
    if not -(2**63) <= value < 2**63:
        raise ValueError(
            f"no job has the id {value if abs(value) < 10**30 else 'that is beyond the column'}: it is a bigint."
        )
    return int(value)


def _of_jobs(queryset: QuerySet[Job]) -> QuerySet[Job]:
    if not issubclass(queryset.model, Job):
        raise TypeError(f"{_TAKES}, not one of {queryset.model.__name__}.")
    return queryset


def _of_queryset(
    jobs: QuerySet[Job], using: str | None, statuses: tuple[JobStatus, ...]
) -> Iterator[tuple[str, list[int]]]:
    alias = using or jobs.db
    rows = jobs.using(alias)
    if jobs.query.is_sliced or jobs.query.combinator or jobs.query.distinct_fields:
        # Read once: a slice is made of others when its first jobs are changed, and a union cannot be narrowed.
        rows = Job.objects.using(alias).filter(pk__in=list(rows.values_list("pk", flat=True)))
    rows = rows.filter(status__in=statuses).order_by("pk")
    last = None
    while ids := list((rows if last is None else rows.filter(pk__gt=last)).values_list("pk", flat=True)[:BATCH]):
        yield alias, ids
        last = ids[-1]


def _account(report: Report, alias: str, ids: list[int], changed: list[int], why_not: str) -> None:
    report.changed += sorted(changed)  # a statement brings them back in the order of its plan
    if skipped := set(ids).difference(changed):
        there = set(Job.objects.using(alias).filter(pk__in=skipped).values_list("pk", flat=True))
        gone = _("there is no such job")
        report.skipped |= {job_id: why_not if job_id in there else gone for job_id in ids if job_id in skipped}


def _wake(alias: str, woken: list[control_store.Woken]) -> None:
    notify.wake(alias, {notify.work_payload(one.queue, one.priority) for one in woken})
