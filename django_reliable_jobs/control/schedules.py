"""What people and code do to schedules: make, change and delete their own, pause, resume, run now, backfill.

Schedules that are defined in code can only be paused, resumed, run now and backfilled; the code is the place to change
them. All of it joins the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import transaction
from django.utils import timezone as django_timezone

from django_reliable_jobs import conf
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.definitions import schedule as schedule_definitions
from django_reliable_jobs.errors import ReliableJobsError
from django_reliable_jobs.firing.by_hand import UnknownSchedule, backfill, check_name, patiently, run_schedule
from django_reliable_jobs.models import CronSchedule
from django_reliable_jobs.schedules import FiringRules, as_timetable, next_fire
from django_reliable_jobs.store.schedules import due as schedule_due
from django_reliable_jobs.store.schedules import rows as schedule_rows
from django_reliable_jobs.store.schedules.due import Due

__all__ = [
    "ScheduleOwnedByCode",
    "UnknownSchedule",
    "backfill",
    "delete_schedule",
    "pause_schedule",
    "resume_schedule",
    "run_schedule",
    "save_schedule",
]


class ScheduleOwnedByCode(ReliableJobsError):
    """The schedule is defined in code; change it there."""


def save_schedule(
    name: str,
    job_name: str,
    expression: str,
    *,
    timezone: str = "UTC",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    pause_after_failures: int | None = None,
    using: str | None = None,
    **rules: Any,
) -> CronSchedule:
    """Make or change a schedule that people own. `expression` is a cron expression or `@every 5m`.

    `rules` are those of `@cron`. Raises `ScheduleError` for an expression, a zone or a rule that cannot be, `UnknownJob`
    for a job that is not registered, `TypeError` and `PayloadError` for arguments that it does not take, and
    `ScheduleOwnedByCode`. It never catches up on what was missed before this moment; with another timetable it counts from
    now on. A schedule that was marked broken is mended by it.
    """
    alias, current = using or conf.current().database, conf.current()
    job = registry.find(job_name)
    texts = schedule_definitions.encode_call(job, tuple(args), dict(kwargs or {}), current.max_payload_bytes)
    for moment in ("starts_at", "ends_at"):
        if not settings.USE_TZ and (value := rules.get(moment)) and django_timezone.is_naive(value):
            rules[moment] = django_timezone.make_aware(value, django_timezone.get_default_timezone())
    timetable, firing_rules = as_timetable(expression, timezone), FiringRules(**rules)
    definition = schedule_definitions.ScheduleDefinition(
        name, job, timetable, timezone, *texts, firing_rules, pause_after_failures
    )
    with transaction.atomic(using=alias):
        while True:
            # No loop but the first time: somebody has just made one of this name.
            _refuse_code_owned(schedule_rows.locked(alias, name))
            now = schedule_due.now(alias)
            schedule_rows.save(alias, definition, next_fire(timetable, firing_rules, now), now)
            if not schedule_rows.drift(alias, [definition], alive=0.0):
                return CronSchedule.objects.using(alias).get(name=name)


def delete_schedule(name: str, *, using: str | None = None) -> bool:
    """Delete a schedule that people own, or one of an app that is not installed any more. Its runs stay.

    False when there is none. Raises `ScheduleOwnedByCode`.
    """
    alias = using or conf.current().database
    try:
        check_name(name)
    except UnknownSchedule:
        return False
    with transaction.atomic(using=alias):
        there = schedule_rows.locked(alias, name)
        if there is None:
            return False
        if schedule_definitions.app_of(there.source) in {config.label for config in apps.get_app_configs()}:
            _refuse_code_owned(there)
        schedule_rows.delete(alias, name)
        return True


def pause_schedule(name: str, *, using: str | None = None) -> bool:
    """No fire any more until it is resumed. False: it was paused before. Raises `UnknownSchedule`."""
    return _set_paused(name, True, using)


def resume_schedule(name: str, *, using: str | None = None) -> bool:
    """Fires again, from the next time on: nothing of the pause is made up for. False: it was not paused.

    Raises `UnknownSchedule`, and `ScheduleError` for one that cannot be computed. One that the code does not define just now
    is not paused any more when it comes back.
    """
    try:
        return _set_paused(name, False, using)
    except UnknownSchedule:
        if schedule_rows.unpause(using or conf.current().database, name):
            return True
        raise


def _set_paused(name: str, paused: bool, using: str | None) -> bool:
    alias = using or conf.current().database

    def change(due: Due) -> bool | None:
        timetable = None if paused else as_timetable(due.expression, due.timezone)
        upcoming = None if timetable is None else next_fire(timetable, due.rules(), due.now)
        if schedule_rows.pause(alias, name, due.version, paused, upcoming, due.now):
            return True
        again = schedule_due.find(alias, name)
        return False if again is not None and again.version == due.version else None

    return patiently(alias, name, change)


def _refuse_code_owned(schedule: CronSchedule | None) -> None:
    if schedule is not None and schedule.source:
        raise ScheduleOwnedByCode(
            f"schedule {schedule.name!r} is defined by the code of the app {schedule.source!r}; change it there."
        )
