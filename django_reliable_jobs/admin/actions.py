"""What people do to jobs in the admin: which verb needs which permission, and what is said and logged of it.

Everything is a verb of `control`, in batches that each are a short transaction together with their log entries. Nobody
waits for long for a row that is locked: it is skipped, and counted with the reason, like one that has changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.admin.models import CHANGE, DELETION
from django.db import OperationalError
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext, ngettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs import control
from django_reliable_jobs.admin.base import OperationsAdmin
from django_reliable_jobs.control import Report
from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.store import control as control_store
from django_reliable_jobs.values.states import CLAIMABLE, FINISHED, RETRYABLE, UNFINISHED

#: Seconds that a batch waits for a row which another transaction has locked, and then each of its rows alone.
PATIENCE, SHORT_PATIENCE = 1.0, 0.05
#: Different reasons that are told one by one; those that name a job may be thousands.
REASONS = 5
#: SQLSTATEs of a statement that took too long, or ended a deadlock.
GIVEN_UP = ("57014", "40P01")


@dataclass(frozen=True)
class Verb:
    """`statuses`: those that it can change. `done` is for ngettext, with `count`."""

    name: str
    permission: str
    statuses: tuple[JobStatus, ...]
    label: str | Promise
    question: str | Promise
    done: Any
    logged: str | Promise
    run: Callable[[list[int], str, int | None], Report]
    flag: int = CHANGE

    @property
    def asks_priority(self) -> bool:
        return self.name == "priority"


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "retry", "retry_job", RETRYABLE, _("Retry"),
            _("They are queued again at once, with all their attempts."),
            ngettext_lazy("%(count)d job is queued again.", "%(count)d jobs are queued again.", "count"),
            _("Retried."), lambda ids, alias, value: control.retry(ids, using=alias),
        ),
        Verb(
            "cancel", "cancel_job", UNFINISHED, _("Cancel"),
            _("Waiting jobs are cancelled at once; the workers of running ones are asked to stop them."),
            ngettext_lazy("%(count)d job is cancelled, or asked to stop.",
                          "%(count)d jobs are cancelled, or asked to stop.", "count"),
            _("Cancelled."), lambda ids, alias, value: control.cancel(ids, using=alias),
        ),
        Verb(
            "run_now", "change_job", CLAIMABLE, _("Run now"),
            _("They are due at once; their status and attempts stay as they are."),
            ngettext_lazy("%(count)d job is due now.", "%(count)d jobs are due now.", "count"),
            _("Made due."), lambda ids, alias, value: control.run_now(ids, using=alias),
        ),
        Verb(
            "priority", "change_job", CLAIMABLE, _("Change priority"),
            _("A number from -100 to 100; jobs with a higher one run first."),
            ngettext_lazy("%(count)d job has the new priority.", "%(count)d jobs have the new priority.", "count"),
            _("Priority changed."), lambda ids, alias, value: control.set_priority(ids, value or 0, using=alias),
        ),
        Verb(
            "delete", "delete_job", (*CLAIMABLE, *FINISHED), _("Delete"),
            _("They are deleted with their attempts, and cannot be brought back. Those that wait will not run."),
            ngettext_lazy("%(count)d job is deleted.", "%(count)d jobs are deleted.", "count"),
            _("Deleted."), lambda ids, alias, value: control.delete(ids, using=alias), DELETION,
        ),
    )
}  # fmt: skip


@dataclass
class Tally:
    """What came of a verb, over any number of batches and requests."""

    changed: int = 0
    skipped: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def add(self, report: Report) -> None:
        self.changed += len(report.changed)
        self.skipped += len(report.skipped)
        for reason in report.skipped.values():
            if reason in self.reasons or len(self.reasons) < REASONS:
                self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def text(self, verb: Verb) -> str:
        """How many were changed, and how many were not and why, as sentences."""
        sentences = [str(verb.done % {"count": self.changed})]
        if self.skipped:
            told = [f"{reason} ({count:,})" if self.skipped > 1 else reason for reason, count in self.reasons.items()]
            if (rest := self.skipped - sum(self.reasons.values())) > 0:
                told.append(gettext("like reasons (%(count)s)") % {"count": f"{rest:,}"})
            skipped = ngettext("%(count)d is left as it is: %(why)s.", "%(count)d are left as they are: %(why)s.",
                               self.skipped)  # fmt: skip
            sentences.append(skipped % {"count": self.skipped, "why": "; ".join(told)})
        return " ".join(sentences)


def perform(
    admin: OperationsAdmin, request: HttpRequest, verb: Verb, alias: str, names: Mapping[int, str], value: int | None
) -> Report:
    """One batch: the jobs (id -> name) in one transaction with their log entries, whatever their status is by now."""
    report = Report()
    try:
        return _together(admin, request, verb, alias, names, value, PATIENCE)
    except control_store.RowLocked:
        pass
    except OperationalError as error:
        # The server has given the statement up, or chosen it to end a deadlock: at this size it might do so for ever.
        if getattr(error.__cause__, "sqlstate", None) not in GIVEN_UP:
            raise
        if len(names) == 1:
            report.skipped = dict.fromkeys(names, gettext("the database has given it up"))
            return report
        ids = list(names)
        for half in (ids[: len(ids) // 2], ids[len(ids) // 2 :]):
            one = perform(admin, request, verb, alias, {job_id: names[job_id] for job_id in half}, value)
            report.changed += one.changed
            report.skipped |= one.skipped
        return report
    for job_id, name in names.items():
        try:
            one = _together(admin, request, verb, alias, {job_id: name}, value, SHORT_PATIENCE)
        except control_store.RowLocked:
            report.skipped[job_id] = gettext("another transaction has it locked")
        else:
            report.changed += one.changed
            report.skipped |= one.skipped
    return report


def _together(
    admin: OperationsAdmin, request: HttpRequest, verb: Verb, alias: str, names: Mapping[int, str], value: int | None,
    patience: float,
) -> Report:  # fmt: skip
    with control_store.patience(alias, patience):
        report = verb.run(list(names), alias, value)
        message = f"{verb.logged} ({value})" if verb.asks_priority else str(verb.logged)
        admin.log(request, [Job(id=job_id, name=names[job_id]) for job_id in report.changed], message, verb.flag)
    return report
