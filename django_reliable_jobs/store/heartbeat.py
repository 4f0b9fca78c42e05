"""Heartbeat: one statement extends all leases of a worker (protocol 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django_reliable_jobs.store.statements import run
from django_reliable_jobs.values.lease import LeaseKey


class Held(NamedTuple):
    """A lease to extend, with the progress to store (JSON text) if there is news."""

    key: LeaseKey
    progress: str | None = None


def heartbeat(alias: str, lease: float, held: Sequence[Held], worker: UUID | None = None) -> dict[LeaseKey, bool]:
    """Extend the leases by `lease` seconds from now; for each one extended, whether somebody asked to cancel it.

    `worker` is whose they are; None: anybody's.
    """
    if not held:
        return {}
    rows = run(
        alias,
        "heartbeat",
        {
            "lease": lease,
            "worker": worker,
            "job_ids": [h.key.job_id for h in held],
            "tokens": [h.key.token for h in held],
            "progresses": [h.progress for h in held],
        },
    )
    return {LeaseKey(job_id, token): cancel for job_id, token, cancel in rows}
