"""Checkpoints: a row of its own, stamped with the token of the latest attempt (protocol 17)."""

from __future__ import annotations

from django_reliable_jobs.errors import StaleToken
from django_reliable_jobs.store.statements import run
from django_reliable_jobs.values.lease import LeaseKey


def load(alias: str, key: LeaseKey) -> str | None:
    """The saved value (JSON text) or None; from now on older attempts are refused. Raises `StaleToken`."""
    rows = run(alias, "checkpoints/load", {"job_id": key.job_id, "token": key.token})
    if not rows:
        raise StaleToken(f"job {key.job_id}: a newer attempt than token {key.token} has loaded its state.")
    return rows[0][0]  # type: ignore[no-any-return]


def save(alias: str, key: LeaseKey, value: str) -> int:
    """Save in the caller's transaction; the new version. Raises `StaleToken`, and then nothing is saved."""
    rows = run(alias, "checkpoints/save", {"job_id": key.job_id, "token": key.token, "value": value})
    if not rows:
        raise StaleToken(f"job {key.job_id} is not running under token {key.token} any more: nothing is saved.")
    return int(rows[0][0])
