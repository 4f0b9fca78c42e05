"""Handlers that leave their process in a state in which others stand still."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from contextlib import suppress

from django_reliable_jobs import JobContext, job
from tests.support.probes.models import Mark


@job(takes_context=True, max_attempts=1, timeout=0.4)
def leaves_a_lock_taken(ctx: JobContext, what: str) -> None:
    """As when a stop exception lands between a lock's acquire and its `try`; here it always does."""
    Mark.objects.create(label=f"{what} begins", job_id=ctx.job_id, token=ctx.fencing_token, pid=os.getpid())
    if what == "logging":
        for reference in logging._handlerList:  # type: ignore[attr-defined]
            if (handler := reference()) is not None:
                handler.acquire()
    elif what == "threading":
        threading._active_limbo_lock.acquire()  # type: ignore[attr-defined]
        while True:  # so long that the watchdog starts a thread in this one's place
            with suppress(BaseException):
                time.sleep(0.01)
    while True:
        time.sleep(0.01)


@job(takes_context=True, max_attempts=2, timeout=None)
def keeps_the_gil(ctx: JobContext, seconds: int, times: int = 1) -> None:
    """Its first `times` attempts do."""
    Mark.objects.create(label="keeps the GIL", job_id=ctx.job_id, token=ctx.fencing_token, pid=os.getpid())
    if ctx.attempt <= times:
        ctypes.PyDLL(None).sleep(seconds)


@job(max_attempts=1, timeout=0.4)
def logs_in_a_loop() -> None:
    log = logging.getLogger("tests.storm")
    while True:
        log.warning("storm")
