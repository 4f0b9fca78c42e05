"""In which order a list of jobs is walked, so that an index gives it; and what a search finds by an index."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django.db.models import Case, F, Func, IntegerField, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Cast, Now
from django.db.models.lookups import GreaterThan

from django_reliable_jobs.admin.paging import Path
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.models import CronRun, Job, JobAttempt, JobStatus
from django_reliable_jobs.operations.overview.slices import MOST_ATTEMPTS
from django_reliable_jobs.values.states import FINISHED, UNFINISHED

#: A schedule's jobs are those of so many of its newest runs.
RUNS = 1_000
#: Bytes, as they are stored, of arguments that are searched; to read larger ones would take long.
SEARCHED = 8_000
#: What a search begins with that is for the arguments only.
IN_ARGUMENTS = "arg:"

NEWEST_FIRST = Path(("-pk",))


def by_status(status: JobStatus, since: datetime | None = None, queue: str | None = None) -> Path:
    """The jobs of one status; where the index gives that too, of one queue.

    Finished ones by when they finished, the latest first; running ones by the end of their lease, so that those in
    trouble come first; waiting ones as they will be claimed; failed ones the newest first.
    """
    base = Q(status=status)
    if status in FINISHED:
        return Path(("-finished_at", "-pk"), base if since is None else base & Q(finished_at__gte=since))
    if status is JobStatus.RUNNING:
        return Path(("locked_until", "pk"), base)
    if status is JobStatus.QUEUED and queue is not None:
        return Path(("-priority", "run_at", "pk"), base & Q(queue=queue), frozenset({"queue"}))
    if status is JobStatus.QUEUED:
        return Path(("queue", "-priority", "run_at", "pk"), base)
    return Path(("-pk",), base)


def of_schedule(name: str, jobs: QuerySet[Job]) -> Path:
    """The jobs of a schedule's newest runs."""
    runs = CronRun.objects.using(jobs.db).filter(name=name, job_id__isnull=False).order_by("-scheduled_for")
    return Path(("-pk",), Q(pk__in=list(runs.values_list("job_id", flat=True)[:RUNS])))


def of_failures(jobs: QuerySet[Job], queue: str | None = None) -> Path:
    """The jobs whose attempts failed in the last hour, of the newest attempts: those that the overview counts."""
    newest = JobAttempt.objects.using(jobs.db).order_by("-pk").values("pk")[:MOST_ATTEMPTS]
    failed = JobAttempt.objects.using(jobs.db).filter(
        Q(status__in=(JobStatus.FAILED, JobStatus.DEAD)) | Q(reason="lost"),
        pk__in=newest, finished_at__gte=Now() - timedelta(hours=1),
    )  # fmt: skip
    if queue is not None:
        failed = failed.filter(job__queue=queue)
    ids = dict.fromkeys(failed.order_by("-pk").values_list("job_id", flat=True))
    return Path(("-pk",), Q(pk__in=list(islice(ids, RUNS))), frozenset({"queue"}))


def exact(term: str, jobs: QuerySet[Job]) -> list[int]:
    """The ids that the term names: an id, an idempotency key, or the unique key of an unfinished job."""
    if term.startswith(IN_ARGUMENTS):
        return []
    found = jobs.order_by().values_list("pk", flat=True)
    # Of any job. Those that are being cancelled are few, and not among the holders of the keys.
    held = Q(unique_key=term, status__in=list(UNFINISHED), cancel_requested_at=None)
    stopping = Q(unique_key=term, status=JobStatus.RUNNING, cancel_requested_at__isnull=False)
    by_key = found.filter(idempotency_key=term).union(found.filter(held), found.filter(stopping))
    number = re.fullmatch(r"(?:.*\s)?#?([0-9]{1,19})", term, re.ASCII | re.DOTALL)
    if number and int(number[1]) < 2**63 and (term.isdigit() or "#" in term):  # also as a job is shown: "shop.mail #42"
        by_key = by_key.union(found.filter(pk=int(number[1])))
    return sorted(by_key)


def newest(jobs: QuerySet[Job], rows: int) -> QuerySet[Job]:
    """The newest so many jobs, whatever `jobs` is narrowed to."""
    oldest = Job.objects.using(jobs.db).order_by("-pk").values_list("pk", flat=True)[rows : rows + 1].first()
    return jobs if oldest is None else jobs.filter(pk__gt=oldest)


def in_text(term: str, jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Those whose arguments or keys hold the term, in any case. No index serves it: for the rows of a window only.

    Jobs with redacted arguments are found by their keys only, and so are those that are not known here: a search must
    not tell what a page hides.
    """
    text = term.removeprefix(IN_ARGUMENTS).strip()
    open_names = [name for name in registry.names() if not registry.find(name).redact]
    found = Q(name__in=open_names) & (Q(args_text__icontains=text) | Q(kwargs_text__icontains=text))
    if not term.startswith(IN_ARGUMENTS):
        found |= Q(unique_key=text)
    return jobs.alias(args_text=_text_of("args"), kwargs_text=_text_of("kwargs")).filter(found)


def status_of(params: Any) -> JobStatus | None:
    """The status that a list is filtered by."""
    asked = params.get("status") or params.get("status__exact")
    return JobStatus(asked) if asked in JobStatus.values else None


def queue_of(params: Any) -> str | None:
    """The queue that a list is filtered by."""
    return str(params.get("queue") or "").replace("\0", "") or None


def _text_of(field: str) -> Case:
    size = GreaterThan(Func(F(field), function="pg_column_size", output_field=IntegerField()), SEARCHED)
    return Case(When(size, then=Value("")), default=Cast(field, TextField()), output_field=TextField())
