"""Atomic handlers that end in every way."""

from __future__ import annotations

import time
from typing import Any

from django.db import transaction

from django_reliable_jobs import JobContext, Retry, Snooze, job
from tests.support.probes.models import Child, Mark


@job(atomic=True, takes_context=True, max_attempts=2, backoff=[60])
def moves(ctx: JobContext, label: str, end: str = "done") -> Any:
    """Writes a mark in the job's own transaction, and ends as told. In its second attempt it is done."""
    Mark.objects.create(label=label, job_id=ctx.job_id, token=ctx.fencing_token, attempt=ctx.attempt)
    ctx.progress(1, 2)
    if ctx.attempt > 1:
        return "second attempt"
    if end == "error":
        raise ValueError("rolled back")
    if end == "constraint":
        Child.objects.create(parent_id=987654321)
    elif end == "raise retry":
        raise Retry(60)
    elif end == "return retry":
        return Retry(60, "half of it is done")
    elif end == "return snooze":
        return Snooze(60)
    elif end == "callback error":
        transaction.on_commit(lambda: 1 / 0)
    elif end == "checkpoint":
        ctx.checkpoint({"at": 7})
        raise ValueError("after the checkpoint")
    elif end == "wait":
        _wait(f"{label} go")
    elif end == "hang":
        time.sleep(300)
    elif end == "unstorable":
        return object()
    return "moved"


def _wait(label: str) -> None:
    until = time.monotonic() + 60
    while not Mark.objects.filter(label=label).exists():
        if time.monotonic() > until:
            raise AssertionError(f"nobody said {label!r}")
        time.sleep(0.02)
