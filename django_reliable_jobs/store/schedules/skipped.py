"""What a backfill makes good for is not skipped any more: the runs that say so are cut out of it."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F
from django.db.models.functions import Coalesce
from django.utils import timezone

from django_reliable_jobs.models import CronRun
from django_reliable_jobs.schedules import Timetable

_NOT_RUN = [CronRun.Outcome.SKIPPED_MISFIRE, CronRun.Outcome.SKIPPED_OVERLAP, CronRun.Outcome.ERROR]
_INSTANT = timedelta.resolution


def forget(alias: str, name: str, timetable: Timetable, start: datetime, end: datetime) -> None:
    """Take (`start`, `end`] out of the schedule's skipped runs. Call it in the transaction that fires these times.

    A stretch that began earlier ends before it, and one that goes on begins again after it.
    """
    runs = CronRun.objects.using(alias).annotate(last=Coalesce("skipped_through", F("scheduled_for")))
    touched = runs.filter(name=name, scheduled_for__lte=end, last__gt=start, outcome__in=_NOT_RUN)
    for run in touched.select_for_update():
        first, last = _aware(run.scheduled_for), _aware(run.last)
        _cut(alias, run, timetable, first, min(start, last))
        after = timetable.next_after(end)
        if after is not None and after <= last:
            rest = CronRun(
                name=name, scheduled_for=after, outcome=run.outcome, detail=run.detail, skipped_through=last,
                skipped_count=timetable.count(end, last), fired_by=run.fired_by, fired_at=run.fired_at, manual=run.manual,
            )  # fmt: skip
            CronRun.objects.using(alias).bulk_create([rest], ignore_conflicts=True)


def with_a_job(alias: str, name: str, start: datetime, end: datetime) -> set[datetime]:
    """The fire times in (`start`, `end`] whose run made a job, whatever became of that."""
    runs = CronRun.objects.using(alias).filter(name=name, scheduled_for__gt=start, scheduled_for__lte=end)
    return {_aware(moment) for moment in runs.exclude(outcome__in=_NOT_RUN).values_list("scheduled_for", flat=True)}


def _cut(alias: str, run: CronRun, timetable: Timetable, first: datetime, through: datetime) -> None:
    """What of the stretch is left up to `through`, if anything is."""
    count = timetable.count(first - _INSTANT, through) if first <= through else 0
    row = CronRun.objects.using(alias).filter(pk=run.pk)
    if count == 0:
        row.delete()
    else:
        row.update(skipped_through=timetable.latest_at(through), skipped_count=count)


def _aware(value: datetime) -> datetime:
    return value if timezone.is_aware(value) else timezone.make_aware(value, timezone.get_default_timezone())
