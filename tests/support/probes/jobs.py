"""Handlers that do what tests need: mark, wait, fail, misbehave. Those that leave a mess are in modules of their own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any

from asgiref.sync import sync_to_async

from django_reliable_jobs import Backoff, JobContext, PermanentFailure, Retry, Snooze, current_job, job
from tests.support.probes import (  # noqa: F401 - their jobs are found with these
    failover,
    programs,
    sessions,
    standing,
    stubborn,
    transactions,
    wrapped,
)
from tests.support.probes.models import Mark


def mark(label: str) -> None:
    ctx = current_job()
    assert ctx is not None
    Mark.objects.create(label=label, job_id=ctx.job_id, token=ctx.fencing_token, attempt=ctx.attempt, pid=os.getpid())


def wait_for_mark(label: str, seconds: float = 60) -> None:
    """Wait until the test (or another handler) has said `label`."""
    until = time.monotonic() + seconds
    while not Mark.objects.filter(label=label).exists():
        if time.monotonic() > until:
            raise AssertionError(f"nobody said {label!r}")
        time.sleep(0.02)


@job
def noop(number: int = 0) -> None:
    pass


@job
async def anoop(number: int = 0) -> None:
    pass


@job
def echo(value: Any) -> Any:
    return value


@job(backoff=Backoff(base=0.05, factor=1, cap=1))
def note(label: str) -> None:
    mark(label)


@job
async def anote(label: str) -> None:
    await sync_to_async(mark)(label)


@job(takes_context=True, backoff=[0.05])
def nap(ctx: JobContext, seconds: float, label: str = "nap") -> None:
    mark(f"{label} begins")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ctx.check()
        time.sleep(0.01)
    mark(f"{label} ends")


@job(backoff=[0.05])
async def anap(seconds: float, label: str = "nap") -> None:
    await sync_to_async(mark)(f"{label} begins")
    await asyncio.sleep(seconds)
    await sync_to_async(mark)(f"{label} ends")


@job(backoff=[0.05])
def meet(label: str) -> None:
    """Says that it is there, and stays until somebody says `label` go."""
    mark(f"{label} begins")
    wait_for_mark(f"{label} go")
    mark(f"{label} ends")


@job(takes_context=True)
def answers(ctx: JobContext, what: str, delay: float | None, until: int, how: str = "raise") -> str:
    """Asks for something else until attempt or mark number `until`, raised or returned; then it is done."""
    mark(f"{what} {ctx.attempt}")
    if Mark.objects.filter(job_id=ctx.job_id).count() >= until:
        return "answered"
    kinds: dict[str, Exception] = {
        "retry": Retry(delay),
        "snooze": Snooze(delay or 0),
        "permanent": PermanentFailure("there is no such customer"),
        "dead on": LookupError("there is no such customer"),
        "error": ValueError("not yet"),
    }
    if how == "return":
        return kinds[what]  # type: ignore[return-value]
    raise kinds[what]


@job(dead_on=(LookupError,), backoff=[0.05])
def looks_up(kind: str) -> None:
    raise {"KeyError": KeyError, "ValueError": ValueError}[kind](kind)


@job(backoff=[0.05, 0.3])
def backs_off_by_list() -> None:
    raise ValueError("again")


def _half_a_second_at_first(attempt: int) -> float:
    return 0.5 if attempt == 1 else 0.05


@job(backoff=_half_a_second_at_first)
def backs_off_by_function() -> None:
    raise ValueError("again")


@job(backoff=lambda attempt: 1 / 0)
def backs_off_badly() -> None:
    raise ValueError("again")


@job(max_attempts=None, backoff=Backoff(base=0.01, factor=5, cap=0.2))
def never_gives_up() -> None:
    raise ValueError("again")


@job(takes_context=True)
def asks_for(ctx: JobContext, kind: str) -> None:
    """L18: delays that somebody's Retry-After header could bring."""
    mark(f"attempt {ctx.attempt}")
    raise Retry(ODD_DELAYS[kind])


ODD_DELAYS: dict[str, Any] = {
    "-5 s": -5, "zero": 0, "nan": float("nan"), "10**12 s": 10**12, "infinite": float("inf"),
    "a string": "soon",
}  # fmt: skip


@job(isolation="process", takes_context=True, timeout=5, max_attempts=2, backoff=[0.05])
def isolated(ctx: JobContext, what: str) -> Any:
    ctx.progress(1, 2, what)
    mark(f"isolated {what}")
    if what == "exit":
        os._exit(7)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "segfault":
        ctypes.string_at(0)
    if what == "spin":
        while True:
            pass
    if what == "until told":
        while True:
            ctx.check()
            time.sleep(0.01)
    if what == "hold the GIL":
        re.match(r"(a+)+$", "a" * 40 + "b")
    if what == "resume" and ctx.state is None:
        ctx.checkpoint(60)
        os._exit(7)
    return ctx.state if what == "resume" else os.getpid()


@job(isolation="process", memory_limit=300, max_attempts=1)
def isolated_glutton(mebibytes: int) -> int:
    return len(bytearray(os.urandom(1)) * (mebibytes * 2**20))


@job(isolation="process")
async def isolated_coroutine() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@job(isolation="process", atomic=True, max_attempts=1)
def isolated_atomic(label: str) -> None:
    mark(label)


@job(backoff=[0.05])
def pairs_up(mine: str, other: str) -> None:
    mark(mine)
    wait_for_mark(other)


@job
def gives(what: str) -> Any:
    """Results that cannot be stored."""
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return {
        "object": object(), "set": {1}, "NaN": float("nan"), "NUL": "a\x00b", "deep": deep, "huge": "x" * 2_000_000,
        "endless": endless,
    }[what]  # fmt: skip


@job
def orphans(count: int) -> None:
    """Leaves processes behind whose parent is gone."""
    script = f"import os, time; [os.fork() or (time.sleep(0.3), os._exit(0)) for _ in range({count})]"
    subprocess.run([sys.executable, "-c", script], check=True)
    mark("orphaned")


@job
def just_in_time(seconds: float) -> None:
    """Sleeps in small steps, so that an exception from outside can arrive at any of them."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.0005)


@job
async def just_in_time_async(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(0.0005)


@job
def calm(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        Mark.objects.exists()


@job
async def calm_async(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await Mark.objects.aexists()


@job(takes_context=True)
def tells_fire_time(ctx: JobContext, scheduled_for: Any = None) -> Any:
    return [scheduled_for, ctx.scheduled_for]


@job(redact=["card", "extra"])
def hides(order: int = 0, card: Any = None, *rest: Any, **extra: Any) -> None:
    """Quotes what nobody is to see."""
    raise ValueError(f"order {order}: the card {card} was refused ({rest}, {extra})")
