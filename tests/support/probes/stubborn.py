"""Handlers that raise what nobody should, hang, or take their process with them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection

from django_reliable_jobs import JobContext, job
from tests.support.probes.models import Mark


class BrokenText(Exception):
    def __str__(self) -> str:
        raise SystemExit("even its text is broken")

    __repr__ = __str__


def _throw(kind: str) -> None:
    if kind == "recursion":
        sys.setrecursionlimit(20_000)
        _deep(10_000)
    thrown: dict[str, Any] = {
        "SystemExit": lambda: SystemExit(3),
        "KeyboardInterrupt": KeyboardInterrupt,
        "CancelledError": asyncio.CancelledError,
        "GeneratorExit": GeneratorExit,
        "StopIteration": StopIteration,
        "MemoryError": MemoryError,
        "BaseException": lambda: BaseException("of no kind"),
        "group": lambda: BaseExceptionGroup("two", [ValueError("one"), SystemExit(2)]),
        "broken text": BrokenText,
        "NUL": lambda: ValueError("x\x00y"),
        "surrogate": lambda: ValueError("x\udcffy"),
        "50 MB": lambda: ValueError("x" * 50_000_000),
        "no UTF-8": lambda: UnicodeDecodeError("utf-8", b"\xff" * 100, 0, 1, "invalid start byte"),
    }
    raise thrown[kind]()


def _deep(left: int) -> None:
    if not left:
        raise ValueError("at the bottom")
    _deep(left - 1)


@job(max_attempts=1)
def raises(kind: str) -> None:
    _throw(kind)


@job(max_attempts=1)
async def raises_async(kind: str) -> None:
    await asyncio.sleep(0)
    _throw(kind)


@job(max_attempts=3, backoff=[0.1])
def dies(how: str) -> None:
    Mark.objects.create(label=f"{how} dies", pid=os.getpid())
    if how.startswith("exit"):
        os._exit(int(how.removeprefix("exit") or 1))
    os.kill(os.getpid(), signal.SIGKILL)


@job(takes_context=True, max_attempts=1, timeout=1.0)
def hangs(ctx: JobContext, how: str, label: str = "hangs") -> str:
    """Goes on long after its deadline."""
    if how == "write late":
        _write_late(ctx, label)
        return "it ran to its end"
    Mark.objects.create(label=f"{label} begins", job_id=ctx.job_id, token=ctx.fencing_token, pid=os.getpid())
    end = time.monotonic() + 300
    if how == "sleep":
        time.sleep(300)
    elif how == "nap":
        while time.monotonic() < end:
            time.sleep(0.01)
    elif how == "spin":
        while True:
            pass
    elif how == "pg_sleep":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")
    elif how == "swallow errors":
        while time.monotonic() < end:
            with suppress(Exception):
                time.sleep(0.01)
    elif how == "swallow everything":
        while time.monotonic() < end:
            with suppress(BaseException):
                time.sleep(0.01)
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1")
    return "it ran to its end"


def _write_late(ctx: JobContext, label: str) -> None:
    """Whatever the machine's pace, the one stop that an attempt gets hits the wait, never what is asked of the database."""
    with suppress(BaseException):
        while True:
            time.sleep(0.02)
    while not Mark.objects.filter(label=f"{label} go").exists():
        time.sleep(0.02)
    Mark.objects.create(label=f"{label} {_attempt(ctx.progress, 1)}", job_id=ctx.job_id)
    Mark.objects.create(label=f"{label} checkpoint {_attempt(ctx.checkpoint, 'late')}", job_id=ctx.job_id)


def _attempt(function: Any, *args: Any) -> str:
    try:
        function(*args)
    except BaseException as error:
        return type(error).__name__
    return "ok"


@job(takes_context=True, max_attempts=1, timeout=1.0)
async def hangs_async(ctx: JobContext, how: str, label: str = "hangs") -> str:
    create = sync_to_async(Mark.objects.create)
    await create(label=f"{label} begins", job_id=ctx.job_id, token=ctx.fencing_token, pid=os.getpid())
    if how == "block":
        time.sleep(300)
    elif how == "spin":
        while True:
            pass
    elif how == "await":
        await asyncio.sleep(300)
    elif how == "swallow errors":
        while True:
            with suppress(Exception):
                await asyncio.sleep(0.01)
    elif how == "swallow everything":
        while True:
            with suppress(BaseException):
                await asyncio.sleep(0.01)
    elif how == "thread":
        await sync_to_async(time.sleep)(300)
    elif how == "query":
        await sync_to_async(_sleep_in_the_database)(60)
    elif how == "leave a task":
        tasks = [asyncio.ensure_future(_stubborn(label))]
        await asyncio.sleep(0.05)
        return f"left {len(tasks)} task"
    return "it ran to its end"


async def _stubborn(label: str) -> None:
    """A task that its handler forgot, and that does not take no for an answer."""
    create = sync_to_async(Mark.objects.create)
    while True:
        with suppress(BaseException):
            await create(label=f"{label} still there")
            await asyncio.sleep(0.05)


def _sleep_in_the_database(seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [seconds])


@job(takes_context=True, max_attempts=1)
def busy(ctx: JobContext, how: str, seconds: float) -> None:
    """L03: handlers that leave the other threads of their process little room."""
    Mark.objects.create(label=f"{how} begins", job_id=ctx.job_id, token=ctx.fencing_token, attempt=ctx.attempt)
    end = time.monotonic() + seconds
    if how == "spin":
        while time.monotonic() < end:
            pass
    elif how == "query":
        _sleep_in_the_database(seconds)
    elif how == "hold the GIL":
        re.match(r"(a+)+$", "a" * int(seconds) + "b")
    Mark.objects.create(label=f"{how} ends", job_id=ctx.job_id, token=ctx.fencing_token, attempt=ctx.attempt)


@job(max_attempts=1)
async def blocks_its_loop(seconds: float) -> None:
    time.sleep(seconds)


@job(max_attempts=1)
def acts_up(how: str) -> str:
    """D06: handlers with processes of their own."""
    if how == "subprocess":
        return subprocess.run([sys.executable, "-c", "print('out')"], capture_output=True, text=True, check=True).stdout
    import multiprocessing

    fork = multiprocessing.get_context("fork")
    if how == "fork":
        Mark.objects.count()  # the slot's connection is open, and the children inherit it
        children = [fork.Process(target=_forked) for _ in range(4)]
        for child in children:
            child.start()
        for child in children:
            child.join(30)
        return " ".join(str(child.exitcode) for child in children)
    if how == "fork with a pool":
        Mark.objects.count()  # an idle connection of the pool is inherited; children have other things to do
        children = [fork.Process(target=time.sleep, args=(0.1,)) for _ in range(4)]
        for child in children:
            child.start()
        for child in children:
            child.join(30)
        return " ".join(str(child.exitcode) for child in children)
    if how == "terminate":
        child = fork.Process(target=time.sleep, args=(60,))
        child.start()
        time.sleep(0.2)
        child.terminate()
        child.join(30)
        return str(child.exitcode)
    if how == "terminate a subprocess":
        started = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"],
                                   stdout=subprocess.PIPE)  # fmt: skip
        assert started.stdout is not None
        started.stdout.readline()
        started.terminate()
        return str(started.wait(30))
    raise AssertionError(how)


def _forked() -> None:
    from django.db import connections

    connections["default"].connection = None  # as every guide to forking says: never the parent's
    connections.close_all()
    assert Mark.objects.count() >= 0
    assert threading.active_count() == 1
    connections.close_all()
