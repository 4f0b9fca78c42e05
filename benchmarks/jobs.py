"""The handlers of the runs."""

from __future__ import annotations

import time

from benchmarks import marks
from django_reliable_jobs import job


@job
def noop(number: int) -> None:
    marks.mark(number)


@job
async def coroutine(number: int) -> None:
    marks.mark(number)


@job(max_attempts=20)
def nap(number: int) -> None:
    marks.nap(number)


@job
def hold(seconds: float) -> None:
    marks.mark(marks.HOLDS)
    time.sleep(seconds)
    marks.mark(marks.HOLDS, marks.END)
