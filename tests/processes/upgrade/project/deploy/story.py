"""What a web process of some version does while workers run, and what must come of it. `python -m deploy.story PART`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import django

django.setup()

from deploy import jobs  # noqa: E402

import django_reliable_jobs  # noqa: E402
from django_reliable_jobs import AlreadyEnqueued, control  # noqa: E402
from django_reliable_jobs.models import CronRun, Job  # noqa: E402

PATIENCE = 120.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"waited in vain for {what}: {list(Job.objects.values())}"
        time.sleep(0.05)


def become(job: Job, status: str) -> Job:
    wait_until(lambda: Job.objects.get(pk=job.pk).status == status, f"{job} to be {status}")
    return Job.objects.get(pk=job.pk)


def refusing(enqueue: Callable[[], object]) -> Job:
    try:
        enqueue()
    except AlreadyEnqueued as error:
        return error.job
    raise AssertionError("the key is held")


def keys() -> None:
    """Every way to meet a key."""
    late = jobs.note.using(unique_key="k", delay=3600)
    held = late.enqueue(1)
    assert held.created
    assert late.enqueue(2).pk == held.pk
    assert late.using(if_exists="replace", delay=7200).enqueue(3).args == [3]
    assert refusing(lambda: late.using(if_exists="raise").enqueue(4)).pk == held.pk
    assert late.enqueue_many([(5,), (6,)]) == [held.pk] * 2
    once = jobs.note.using(idempotency_key="once")
    assert once.enqueue(7).pk == once.enqueue(8).pk == once.enqueue_many([(9,)])[0]
    assert control.cancel(held)
    assert late.enqueue(10).created
    assert not control.retry(held), "another one holds the key"
    assert control.cancel(Job.objects.filter(unique_key="k"))
    assert control.retry(held)
    assert become(held, "DONE").result == 3


def work() -> None:
    """Every way that an attempt ends, and schedules."""
    many = jobs.note.enqueue_many([(n,) for n in range(100)])
    long, twice, sleepy, atomic = (
        jobs.long.enqueue(5),
        jobs.twice.enqueue(),
        jobs.sleepy.enqueue(),
        jobs.atomic.enqueue(),
    )
    broken, late = jobs.broken.enqueue(), jobs.note.using(delay=5, expires=0.5).enqueue("too late")
    assert become(twice, "DONE").result == 2
    assert become(sleepy, "DONE").attempts == 1
    assert become(atomic, "DONE").result == "committed"
    assert become(broken, "DEAD").reason == "permanent failure"
    assert control.retry(broken)
    assert become(broken, "DEAD").attempts == 1
    assert become(late, "CANCELLED").reason == "expired"
    found = become(long, "DONE")
    assert (found.attempts, found.losses) == (1, 0), "its lease was kept"
    wait_until(lambda: Job.objects.filter(pk__in=many, status="DONE").count() == 100, "a hundred jobs")
    fired = CronRun.objects.filter(name="deploy.tick", outcome="enqueued")
    wait_until(lambda: Job.objects.filter(pk__in=fired.values("job_id"), status="DONE").count() >= 2, "two runs")
    assert not Job.objects.filter(losses__gt=0).exists()


def hold() -> None:
    """Before a deploy: a key that code of the next version is to meet, and a job for its worker."""
    assert jobs.note.using(unique_key="over the deploy", delay=3600).enqueue("held").created
    assert jobs.note.using(idempotency_key="over the deploy").enqueue("waits").created


def meet() -> None:
    """After it."""
    for options in ({"unique_key": "over the deploy"}, {"idempotency_key": "over the deploy"}):
        assert not jobs.note.using(**options).enqueue("again").created
    job = Job.objects.get(idempotency_key="over the deploy")
    assert become(job, "DONE").result == "waits"


if __name__ == "__main__":
    tree = Path(django_reliable_jobs.__file__).parents[1]
    assert tree == Path.cwd(), f"the package comes from {tree}"
    for part in sys.argv[1:]:
        {"keys": keys, "work": work, "hold": hold, "meet": meet}[part]()
