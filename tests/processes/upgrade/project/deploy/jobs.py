"""Handlers that use what the store writes for a running job."""

from __future__ import annotations

import time
from typing import Any

from django_reliable_jobs import PermanentFailure, Snooze, every, job


@job(name="deploy.note")
def note(label: Any) -> Any:
    return label


@job(name="deploy.long")
def long(seconds: float) -> None:
    """Longer than a lease: only heartbeats keep it."""
    time.sleep(seconds)


@job(name="deploy.twice", takes_context=True)
def twice(ctx: Any) -> int:
    """Fails in the middle, and goes on from its checkpoint."""
    if ctx.state is None:
        ctx.checkpoint({"half": 1})
        raise RuntimeError("in the middle")
    ctx.progress(2, 2)
    return int(ctx.attempt)


@job(name="deploy.sleepy", takes_context=True)
def sleepy(ctx: Any) -> Snooze | None:
    if ctx.state is None:
        ctx.checkpoint(1)
        return Snooze(0.1)
    return None


@job(name="deploy.atomic", atomic=True)
def atomic() -> str:
    return "committed"


@job(name="deploy.broken")
def broken() -> None:
    raise PermanentFailure("no use")


@every(seconds=1)
@job(name="deploy.tick")
def tick() -> None:
    """What a schedule fires."""
