"""Fencing tokens: jobs, cron runs and guards all take theirs from one sequence, so any two can be compared."""

from __future__ import annotations

from django_reliable_jobs.store.statements import run


def fencing_tokens(alias: str, count: int = 1) -> list[int]:
    """`count` new tokens, rising."""
    return [row[0] for row in run(alias, "fencing_token", {"count": count})] if count else []
