"""The system check that compares the sequence of fencing tokens with the tables. Importing this module registers it."""

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
from django_reliable_jobs.store import tokens

TAG = "reliable_jobs"


@register(Tags.database)
def check_token_sequence(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """W006: the sequence of fencing tokens is behind the tokens in the tables."""
    try:
        alias = conf.current().database
    except ImproperlyConfigured:  # E001 says so
        return []
    if alias not in (databases or ()) or connections[alias].vendor != "postgresql" or checks_before_the_lock():
        return []
    found = _behind(alias)
    if found is None:
        return []
    hint = f"A worker raises it when it starts, if its role may. By hand: {found.remedy}"
    return [CheckWarning(f"{str(found)[0].upper()}{str(found)[1:]}.", hint=hint, id=f"{TAG}.W006")]


def _behind(alias: str) -> tokens.Behind | None:
    """Nothing before the tables are made, or where an older version's are."""
    try:
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT to_regclass('django_reliable_jobs_tokenmark') IS NOT NULL")
            if not cursor.fetchone()[0]:
                return None
        return tokens.behind(alias)
    except DatabaseTrouble:  # out of reach
        return None
