"""Fencing tokens: jobs, cron runs and guards all take theirs from one sequence, so any two can be compared.

A sequence is not in a data-only restore, in logical replication or in `loaddata`: it begins again at 1 behind tables full of
greater tokens. Then living owners are refused as stale, and old ones pass. So the tables remember how far it has come
(`TokenMark`, which maintenance raises), and whoever starts compares.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction

from django_reliable_jobs.store import fences
from django_reliable_jobs.store.statements import change, run

#: How far beyond the greatest known token the sequence is set: more than any fleet takes between two raises of the mark.
MARGIN = 1_000_000_000
LAST = 2**63 - 1


def fencing_tokens(alias: str, count: int = 1) -> list[int]:
    """`count` new tokens, rising."""
    return [row[0] for row in run(alias, "fencing_token", {"count": count})] if count else []


@dataclass(frozen=True, slots=True)
class Behind:
    """The sequence has given `last`, and the tables hold `known`, a greater token."""

    last: int
    known: int

    @property
    def target(self) -> int:
        return min(self.known + MARGIN, LAST - MARGIN)

    @property
    def remedy(self) -> str:
        """The statement that puts it right."""
        return f"SELECT setval('django_reliable_jobs_fencing_token', {self.target});"

    def __str__(self) -> str:
        return (
            f"the sequence django_reliable_jobs_fencing_token ({self.last}) is behind the tokens in the tables ({self.known}):"
            " it was not part of what this database was restored, replicated or loaded from"
        )


def behind(alias: str) -> Behind | None:
    """Whether the sequence is behind the tables: a few rows of indexes are read."""
    [(last, known)] = run(alias, "tokens/state", {})
    return Behind(last, known) if last < known else None


def raise_sequence(alias: str) -> Behind | None:
    """Raise it if it is behind; what was found. Raises what the database raises: the role may not be allowed to.

    Under a lock until the transaction ends, so that of two who find it the second sees it raised.
    """
    with transaction.atomic(using=alias):
        fences.advisory_xact_lock(alias, "django_reliable_jobs.fencing_token")
        found = behind(alias)
        if found is not None:
            run(alias, "tokens/raise", {"token": found.target})
    return found


def raise_mark(alias: str) -> None:
    """Remember how far the sequence has come."""
    change(alias, "tokens/mark", {})
