"""The handlers of the chaos runs. Each tells the history when it starts and how it ends, with its token.

A new kind of job is a handler here, wrapped in `recorded(tag)`, and an entry in `mix.py` that says what is to become of
it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction

from django_reliable_jobs import Backoff, JobContext, PermanentFailure, Snooze, current_job, job
from django_reliable_jobs.errors import StopHandler
from tests.chaos.history import Expectation, record, record_enqueue
from tests.chaos.workload.models import Effect

#: Faults fail a job more often than anybody's job would fail: nothing of this mix may die of it.
PATIENT = 200
SOON = Backoff(base=0.1, factor=2, cap=1)


logger = logging.getLogger(__name__)


@contextmanager
def recorded(tag: str) -> Iterator[JobContext]:
    ctx = current_job()
    assert ctx is not None
    who = {"job": ctx.job_id, "token": ctx.fencing_token, "attempt": ctx.attempt, "tag": tag, "kind": ctx.name}
    outcome = "returned"
    try:
        record("start", **who)
        yield ctx
    except Snooze:
        outcome = "snoozed"
        raise
    except (StopHandler, asyncio.CancelledError):
        outcome = "stopped"
        raise
    except BaseException:
        outcome = "raised"
        raise
    finally:
        record("end", outcome=outcome, **who)


def result_of(ctx: JobContext) -> dict[str, Any]:
    """The row's result must come from the attempt whose token the row bears."""
    return {"token": ctx.fencing_token}


def effect(ctx: JobContext, tag: str, step: int = 0) -> None:
    Effect.objects.create(tag=tag, step=step, job_id=ctx.job_id, token=ctx.fencing_token, pid=os.getpid())


def spend(seconds: float) -> None:
    """Work that can be interrupted between two steps."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.01))


@job(max_attempts=PATIENT, backoff=SOON)
def quick(tag: str) -> Any:
    with recorded(tag) as ctx:
        return result_of(ctx)


@job(max_attempts=PATIENT, backoff=SOON)
async def coroutine(tag: str, seconds: float) -> Any:
    with recorded(tag) as ctx:
        await asyncio.sleep(seconds)
        # It touches the database as coroutines do: from the thread of its own.
        await sync_to_async(Effect.objects.filter(tag=tag).count)()
        return result_of(ctx)


@job(max_attempts=PATIENT, backoff=SOON)
def slow(tag: str, seconds: float) -> Any:
    with recorded(tag) as ctx:
        spend(seconds)
        return result_of(ctx)


@job(max_attempts=PATIENT, backoff=SOON)
def asking(tag: str, seconds: float) -> Any:
    """Asks the database again and again, each time in a transaction of its own."""
    with recorded(tag) as ctx:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            Effect.objects.filter(tag=tag).count()
            spend(0.05)
        return result_of(ctx)


@job(max_attempts=PATIENT, backoff=SOON)
def flaky(tag: str, failures: int) -> Any:
    """Fails in its first attempts, however those ended that were lost."""
    with recorded(tag) as ctx:
        if ctx.attempt <= failures:
            raise RuntimeError(f"attempt {ctx.attempt} was to fail")
        return result_of(ctx)


@job(max_attempts=PATIENT, backoff=SOON)
def snoozing(tag: str) -> Any:
    """Puts itself back now and then; a snooze uses up no attempt, so attempt numbers repeat while tokens do not."""
    with recorded(tag) as ctx:
        if ctx.fencing_token % 3 == 0:
            raise Snooze(0.1)
        return result_of(ctx)


@job(max_attempts=PATIENT, backoff=SOON, atomic=True, timeout=20)
def atomic(tag: str, seconds: float) -> Any:
    """One effect, a pause in which the process may be hit, and DONE: all in one transaction."""
    with recorded(tag) as ctx:
        effect(ctx, tag)
        spend(seconds)
        return result_of(ctx)


@job(max_attempts=PATIENT, backoff=SOON, atomic=True, timeout=60)
def lingering(tag: str, seconds: float) -> Any:
    """Has work for after the commit; the history is told when that has come to its end."""

    def after() -> None:
        record("callback begins", tag=tag)
        spend(seconds)
        record("callback ends", tag=tag)

    with recorded(tag) as ctx:
        effect(ctx, tag)
        transaction.on_commit(after)
        return result_of(ctx)


@job(max_attempts=PATIENT, backoff=SOON, atomic=True, timeout=20)
def parent(tag: str) -> Any:
    """Enqueues another job in its own transaction: that one is there exactly when this one is DONE."""
    with recorded(tag) as ctx:
        child = f"{tag}/child"
        record_enqueue([child], quick.name, Expectation(bound_to=tag))
        quick.enqueue(child)
        effect(ctx, tag)
        return result_of(ctx)


@job(max_attempts=PATIENT, backoff=SOON, timeout=30)
def steps(tag: str, count: int, seconds: float) -> Any:
    """Commits each step together with its checkpoint: every step is done once, in whichever attempt."""
    with recorded(tag) as ctx:
        for step in range(ctx.state or 0, count):
            with transaction.atomic():
                effect(ctx, tag, step)
                ctx.checkpoint(step + 1)
            spend(seconds)
        return result_of(ctx)


@job(max_attempts=2, backoff=SOON)
def failing(tag: str) -> None:
    with recorded(tag):
        raise RuntimeError("it always fails")


@job(max_attempts=PATIENT, backoff=SOON)
def hopeless(tag: str) -> None:
    with recorded(tag):
        raise PermanentFailure("there is no point in trying again")


@job(max_attempts=3, backoff=SOON)
def deadly(tag: str) -> None:
    """Takes its whole process with it, like a handler that uses up the memory."""
    with recorded(tag):
        os.kill(os.getpid(), signal.SIGKILL)
        spend(10)  # a signal takes a moment


@job(max_attempts=3, backoff=SOON)
def brittle(tag: str, seconds: float) -> Any:
    """For crashes alone: it must never start more often than it has attempts."""
    with recorded(tag) as ctx:
        spend(seconds)
        return result_of(ctx)


@job(max_attempts=PATIENT, backoff=SOON, timeout=0.4)
def chatty(tag: str) -> Any:
    """Is stopped at its deadline while it takes the locks of log handlers, as each line does; most are not written."""
    with recorded(tag) as ctx:
        lines = 0
        while ctx.attempt == 1:
            lines += 1
            if lines % 500 == 0:
                logger.info("a line of a handler that logs without a pause")
            for handler in logging.root.handlers:
                handler.acquire()
                try:
                    pass
                finally:
                    handler.release()
        return result_of(ctx)


@job(max_attempts=PATIENT, backoff=SOON, timeout=0.5)
def freezing(tag: str) -> Any:
    """Keeps the locks of all log handlers and does not stop: what a stop between a lock's acquire and its `try` leaves behind.

    The watchdog stands still as soon as it has something to say, and then the process has to go.
    """
    with recorded(tag) as ctx:
        if ctx.attempt > 1:
            return result_of(ctx)
        for reference in list(logging._handlerList):  # type: ignore[attr-defined]
            if (handler := reference()) is not None:
                handler.acquire()
        while True:
            with suppress(BaseException):
                time.sleep(60)


@job
def scheduled() -> None:
    """Of a schedule that people made, in a zone that not every host knows."""
