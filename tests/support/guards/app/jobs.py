"""Jobs that use guards and fences."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.db.models import F

from django_reliable_jobs import JobContext, job
from django_reliable_jobs.errors import StopHandler
from django_reliable_jobs.fencing import fence
from django_reliable_jobs.guards import claim_once, claim_period, run_exclusive
from tests.support.guards.app.models import Entry, Sheet
from tests.support.guards.app.writes import write


@job(takes_context=True, backoff=[0.05])
def uses_everything(ctx: JobContext, number: int) -> None:
    """A claim, a fence, a checkpoint and a lease, in short transactions."""
    claim_period("busy", 3600)
    with transaction.atomic():
        if claim_once(f"{ctx.idempotency_key}:{number}", ttl=timedelta(days=1)):
            fence(f"busy {number}", ctx.fencing_token)
            ctx.checkpoint(number)
    run_exclusive(f"busy {number}", 30, ctx.progress, 1)


@job(takes_context=True, max_attempts=3, backoff=[0.05])
def credits_each_once(ctx: JobContext, count: int, dies_at: int) -> None:
    """An entry a record, and their number on a sheet: both would show one that was done twice.

    The first attempt kills its process at record `dies_at`, when the claim and the effect are there and not committed.
    """
    for number in range(count):
        with transaction.atomic():
            if claim_once(f"{ctx.idempotency_key}:{number}", ttl=timedelta(days=1)):
                Entry.objects.create(label=f"record {number}", token=ctx.fencing_token, pid=os.getpid())
                Sheet.objects.filter(name="total").update(total=F("total") + 1)
                if number == dies_at and ctx.attempt == 1:
                    os.kill(os.getpid(), signal.SIGKILL)


@job(takes_context=True, max_attempts=5, backoff=[0.05])
def writes_late(ctx: JobContext) -> None:
    """Its first owner writes when somebody says "go on", whatever has become of its lease; others write at once.

    It does so in a thread of its own, which nobody tells that the lease is lost. It is waited for even so: a process that has
    stopped a handler makes way for a fresh one as soon as it is idle, and the thread would die with it.
    """
    written = threading.Event()
    threading.Thread(target=_write_when_told, args=(ctx.fencing_token, ctx.attempt, written), daemon=True).start()
    stopped: BaseException | None = None
    # Not `Thread.join`: an exception that is raised in it marks the other thread as ended.
    while not written.is_set():
        try:
            while not written.is_set():
                time.sleep(0.02)
        except StopHandler as error:  # it is raised again and again
            stopped = error
    if stopped is not None:
        raise stopped


def _write_when_told(token: int, attempt: int, written: threading.Event) -> None:
    try:
        _write(token, attempt)
    finally:
        written.set()


def _write(token: int, attempt: int) -> None:
    Entry.objects.create(label="begins", token=token, pid=os.getpid())
    give_up = time.monotonic() + 120
    while attempt == 1 and not Entry.objects.filter(label="go on").exists():
        assert time.monotonic() < give_up
        time.sleep(0.02)
    for what, answer in write(token).items():
        Entry.objects.create(label=f"{what}: {answer}", token=token, pid=os.getpid())
    connections.close_all()


@job(takes_context=True)
def fenced(ctx: JobContext, name: str) -> int:
    with transaction.atomic():
        fence(name, ctx.fencing_token)
        Entry.objects.create(label=name, token=ctx.fencing_token)
    return ctx.fencing_token


@job(takes_context=True)
async def fenced_async(ctx: JobContext, name: str) -> int:
    token = ctx.fencing_token
    assert await sync_to_async(fenced.function)(ctx, name) == token
    return token
