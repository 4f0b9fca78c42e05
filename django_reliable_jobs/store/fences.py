"""Fences: a row each, with the newest token that has passed; and locks for those who want one without a row."""

from __future__ import annotations

from django_reliable_jobs.store.statements import run


def enter(alias: str, name: str, token: int) -> bool:
    """Take the fence's row in the caller's transaction; False: a newer token has passed, and nothing is held."""
    return bool(run(alias, "fence", {"name": name, "token": token}))


def advisory_xact_lock(alias: str, key: str) -> None:
    """Wait for the lock of this key and hold it until the caller's transaction ends."""
    run(alias, "advisory_xact_lock", {"key": key})
