"""The system check that looks into the table of schedules. Importing this module registers it.

It runs with `manage.py check --database default`, as Django's own checks of databases do, but not with `migrate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Tags, register
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseTrouble
from django.db import connections

from django_reliable_jobs import conf
from django_reliable_jobs.migration_lock.command import checks_before_the_lock
from django_reliable_jobs.schedules import RULES, FiringRules, as_timetable

TAG = "reliable_jobs"
#: Those that no host has trouble to read; moments may be out of its range.
_RULES = tuple(name for name in RULES if name not in ("starts_at", "ends_at"))


@register(Tags.database)
def check_schedules(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """W005: a schedule is marked broken, or cannot be computed."""
    try:
        alias = conf.current().database
    except ImproperlyConfigured:  # E001 says so
        return []
    if alias not in (databases or ()) or checks_before_the_lock():
        return []
    return [
        CheckWarning(
            f"The schedule {row['name']!r} does not fire: {problem}",
            hint="Correct it in the admin or with save_schedule(); one in code is put right by its workers.",
            obj=row["name"],
            id=f"{TAG}.W005",
        )
        for row in _rows(alias)
        if (problem := row["broken"] or _problem(row))
    ]


def _rows(alias: str) -> list[dict[str, Any]]:
    """Without moments, which may be out of any host's range; nothing before the table is made."""
    from django_reliable_jobs.models import CronSchedule

    try:
        with connections[alias].cursor() as cursor:
            if CronSchedule._meta.db_table not in connections[alias].introspection.table_names(cursor):
                return []
        rows = CronSchedule.objects.using(alias).order_by("name")
        return list(rows.values("name", "broken", "expression", "timezone", *_RULES))
    except DatabaseTrouble:  # out of reach, or an older version's table
        return []


def _problem(row: dict[str, Any]) -> str:
    try:
        as_timetable(row["expression"], row["timezone"])
        FiringRules(**{name: row[name] for name in _RULES})
    except (ValueError, TypeError, OverflowError) as error:
        return str(error)
    return ""
