"""One job: everything that is known of it, in a bounded number of queries and of bytes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import DateTimeField, Func
from django.db.models.functions import Left, Length, Right
from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext

from django_reliable_jobs import payload
from django_reliable_jobs.admin.display import CUT, cut, pretty, reason, sized
from django_reliable_jobs.definitions import redaction, registry
from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.errors import PayloadError, UnknownJob
from django_reliable_jobs.models import CronRun, Job, JobCheckpoint, JobStatus, Worker
from django_reliable_jobs.values.states import UNFINISHED

if TYPE_CHECKING:
    from django_reliable_jobs.admin.jobs.changelist import JobAdmin

#: The newest attempts are shown; a job without a limit may have thousands.
ATTEMPTS = 20
#: Characters of a long traceback: its first lines say where it began, its last ones what happened.
HEAD, TAIL = 4_000, 12_000


def view(admin: JobAdmin, request: HttpRequest, object_id: str) -> HttpResponseBase:
    jobs = admin.get_queryset(request)
    found = jobs.filter(pk=object_id) if object_id.isascii() and object_id.isdigit() and len(object_id) < 19 else None
    job = None if found is None else found.annotate(**_columns()).first()
    if job is None:
        return admin._get_obj_does_not_exist_redirect(request, admin.opts, object_id)  # type: ignore[no-any-return, attr-defined]
    definition = _definition(job.name)
    shown = _Shown(job, definition)
    worker = Worker.objects.using(jobs.db).filter(pk=job.locked_by).first() if job.locked_by else None
    run = CronRun.objects.using(jobs.db).filter(job_id=job.pk).only("name", "scheduled_for").first()
    checkpoint = JobCheckpoint.objects.using(jobs.db).filter(job_id=job.pk).defer("value").annotate(**sized("value"))
    attempts = list(_attempts(job))
    return admin.page(
        request, "job/detail.html", str(job),
        job=job, original=job, reason=reason(job.reason), definition=definition, live=job.status in UNFINISHED,
        arguments=shown.arguments(), result=shown.value("result"), progress=shown.progress(),
        hidden=bool(definition is None or definition.redact), unknown=definition is None,
        checkpoint=[(row, shown.value("value", row)) for row in checkpoint],
        attempts=[shown.attempt(row) for row in attempts[:ATTEMPTS]], older_attempts=len(attempts) > ATTEMPTS,
        worker=worker, worker_url=admin.link_or_none("change", job.locked_by, model=Worker) if worker else None,
        run=run, run_url=admin.link_or_none("change", run.pk, model=CronRun) if run else None,
        lease_over=job.status == JobStatus.RUNNING and job.locked_until and job.locked_until < job.db_now,
        verbs=[verb for verb in admin.verbs(request) if job.status in verb.statuses], act_url=admin.link("act"),
    )  # fmt: skip


def _columns() -> dict[str, Any]:
    """The payloads, read in bounds, and the database's clock."""
    clock = Func(function="statement_timestamp", output_field=DateTimeField())
    return sized("args") | sized("kwargs") | sized("result") | sized("progress") | {"db_now": clock}


def _definition(name: str) -> JobDefinition | None:
    try:
        return registry.find(name)
    except UnknownJob:
        return None


class _Shown:
    """What of the job's values people get to see."""

    def __init__(self, job: Any, definition: JobDefinition | None) -> None:
        self.job, self.definition = job, definition
        self.whole = job.args_whole is not None and job.kwargs_whole is not None
        self.args, self.kwargs = _decoded(job.args_whole), _decoded(job.kwargs_whole)
        if type(self.args) is not list or type(self.kwargs) is not dict:  # too large, or no call
            self.whole, self.args, self.kwargs = False, [], {}
        self.secrets = redaction.secrets(definition, self.args, self.kwargs) if self.whole else []

    def arguments(self) -> list[tuple[str, str]]:
        """(name, text) of each argument."""
        if not self.whole:
            return [(name, self._part(name)) for name in ("args", "kwargs")]
        args, kwargs = redaction.hide(self.definition, self.args, self.kwargs)
        names = () if self.definition is None else self.definition.parameter_names
        by_place = [(names[i] if i < len(names) else f"{i + 1}.", value) for i, value in enumerate(args)]
        return [(name, pretty(value)) for name, value in [*by_place, *kwargs.items()]]

    def value(self, field: str, row: Any = None) -> str | None:
        """Another payload; it may quote an argument."""
        row = self.job if row is None else row
        if getattr(row, f"{field}_size") is None:
            return None
        if getattr(row, f"{field}_part") is not None:
            return self._part(field, row)
        if not self._open():
            return redaction.HIDDEN
        return redaction.scrub(pretty(_decoded(getattr(row, f"{field}_whole"))), self.secrets)

    def progress(self) -> dict[str, Any] | None:
        value = self.job.progress_whole
        if not isinstance(value, dict):
            return None
        done, total = value.get("done"), value.get("total")
        numbers = isinstance(done, (int, float)) and isinstance(total, (int, float)) and total > 0
        message = cut(str(value.get("message") or ""), 2_000)
        message = redaction.scrub(message, self.secrets) if self._open() else redaction.HIDDEN
        return {"done": done, "total": total if numbers else None, "message": message}

    def attempt(self, row: Any) -> dict[str, Any]:
        trace = row.head
        if row.size > HEAD + TAIL:
            left_out = gettext("… %(count)s characters left out …") % {"count": f"{row.size - HEAD - TAIL:,}"}
            trace = f"{row.head}\n\n{left_out}\n\n{row.tail}"
        elif row.size > HEAD:
            trace = row.head + row.tail[HEAD - row.size :]
        message = cut(row.message, 2_000, length=row.message_size)
        if not self._open():
            message = trace = redaction.HIDDEN
        return {
            "row": row, "reason": reason(row.reason), "took": _took(row), "kind": row.error_kind,
            "message": redaction.scrub(message, self.secrets), "traceback": redaction.scrub(trace, self.secrets),
        }  # fmt: skip

    def _open(self) -> bool:
        """Whether it is known what is to be hidden in other texts: not, if the arguments were too large to read."""
        return self.whole or (self.definition is not None and not self.definition.redact)

    def _part(self, field: str, row: Any = None) -> str:
        row = self.job if row is None else row
        if self.definition is None or self.definition.redact:
            return redaction.HIDDEN
        whole = getattr(row, f"{field}_whole")
        if whole is not None or getattr(row, f"{field}_part") is None:
            return pretty(_decoded(whole))
        size = f"{getattr(row, f'{field}_size'):,}"
        return gettext("%(text)s… [cut, %(count)s bytes stored]") % {
            "text": getattr(row, f"{field}_part")[:CUT], "count": size,
        }  # fmt: skip


def _decoded(value: Any) -> Any:
    try:
        return payload.decode(value)
    except PayloadError:
        return value


def _took(row: Any) -> timedelta | None:
    """Whole seconds; a tenth where it was less than ten."""
    if row.started_at is None:
        return None
    seconds = (row.finished_at - row.started_at).total_seconds()
    return timedelta(seconds=round(seconds, 1 if seconds < 10 else None))


def _attempts(job: Job) -> Any:
    """The newest first, one more than is shown; long texts are cut in the database."""
    whole = {"size": Length("traceback"), "message_size": Length("error_message")}
    parts = {"head": Left("traceback", HEAD), "tail": Right("traceback", TAIL), "message": Left("error_message", 2_000)}
    rows = job.attempt_set.defer("traceback", "error_message").annotate(**whole, **parts)
    return rows.order_by("-fencing_token")[: ATTEMPTS + 1]
