"""What ran, from the database: nothing is counted by the demo itself."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields

from django.db.models import Count, F, Max, Sum

from django_reliable_jobs.models import Job, JobAttempt, JobStatus
from django_reliable_jobs.values.states import FINISHED, UNFINISHED
from testproject.shop.models import Account, Import, Invoice, LedgerEntry, Product, StockMove


@dataclass
class Line:
    """One job name. `enqueued` is the sum of done, dead, cancelled and left."""

    enqueued: int = 0
    done: int = 0
    failed: int = 0  # attempts, each of which was followed by another
    dead: int = 0
    cancelled: int = 0
    left: int = 0  # unfinished
    recovered: int = 0  # DONE although a worker was lost with it

    def count(self, column: str, number: int) -> None:
        setattr(self, column, getattr(self, column) + number)

    def add(self, other: Line) -> None:
        for column in COLUMNS:
            self.count(column, getattr(other, column))


#: The names of the columns, in their order.
COLUMNS = tuple(field.name for field in fields(Line))


def last_job() -> int:
    """Jobs with a greater id are of this run."""
    return int(Job.objects.aggregate(last=Max("pk"))["last"] or 0)


def by_status(first: int) -> dict[str, int]:
    rows = Job.objects.filter(pk__gt=first).values_list("status").annotate(count=Count("pk"))
    return {status.value: 0 for status in JobStatus} | dict(rows)


def finished(counts: dict[str, int]) -> int:
    return sum(counts[status] for status in FINISHED)


def unfinished(counts: dict[str, int]) -> int:
    return sum(counts[status] for status in UNFINISHED)


def table(first: int) -> dict[str, Line]:
    """By job name, for the jobs of this run."""
    columns = {JobStatus.DONE: "done", JobStatus.DEAD: "dead", JobStatus.CANCELLED: "cancelled"}
    lines: defaultdict[str, Line] = defaultdict(Line)
    jobs = Job.objects.filter(pk__gt=first)
    for name, status, count in jobs.values_list("name", "status").annotate(count=Count("pk")):
        lines[name].count("enqueued", count)
        lines[name].count(columns.get(JobStatus(status), "left"), count)
    recovered = jobs.filter(status=JobStatus.DONE, losses__gt=0)
    for name, count in recovered.values_list("name").annotate(count=Count("pk")):
        lines[name].count("recovered", count)
    attempts = JobAttempt.objects.filter(job__pk__gt=first, status=JobStatus.FAILED)
    for name, count in attempts.values_list("job__name").annotate(count=Count("pk")):
        lines[name].count("failed", count)
    return dict(sorted(lines.items()))


def books() -> list[tuple[bool, str]]:
    """What must be true of the shop's own rows, whatever was killed: each fact with whether it is."""
    booked = Invoice.objects.filter(booked_at__isnull=False).count()
    entries = LedgerEntry.objects.count()
    twice = LedgerEntry.objects.values("invoice").annotate(count=Count("pk")).filter(count__gt=1).count()
    balance = Account.objects.aggregate(sum=Sum("balance"))["sum"] or 0
    total = LedgerEntry.objects.aggregate(sum=Sum("amount"))["sum"] or 0

    moves = StockMove.objects.count()
    moved_twice = StockMove.objects.values("source").annotate(count=Count("pk")).filter(count__gt=1).count()
    counters_off = Product.objects.annotate(sum=Sum("stockmove__quantity")).exclude(sum=F("stock")).count()

    imports = Import.objects.filter(finished_at__isnull=False).annotate(
        done=Count("imported"), distinct=Count("imported__number", distinct=True)
    )
    once = [batch.done == batch.distinct == len(batch.records) for batch in imports]
    return [
        (
            twice == 0 and entries == booked and balance == total,
            f"{booked} invoices booked, {twice} of them twice; the balance is off by {balance - total}",
        ),
        (
            moved_twice == 0 and counters_off == 0,
            f"{moves} stock moves, {moved_twice} of them twice; {counters_off} counters are off",
        ),
        (all(once), f"{sum(once)} of {len(once)} finished imports have each record once"),
    ]
