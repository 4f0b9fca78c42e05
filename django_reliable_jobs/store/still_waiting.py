"""Asks again for what a worker holds and has not begun (protocol 8)."""

from __future__ import annotations

from collections.abc import Sequence

from django_reliable_jobs.store.statements import run_positional
from django_reliable_jobs.values.lease import LeaseKey


def still_waiting(alias: str, keys: Sequence[LeaseKey]) -> set[LeaseKey]:
    """Those of the leases that may begin now."""
    params = {"job_ids": [key.job_id for key in keys], "tokens": [key.token for key in keys]}
    return {LeaseKey(*row) for row in run_positional(alias, "still_waiting", params)} if keys else set()
