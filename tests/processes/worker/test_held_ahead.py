"""What a worker holds ahead of its slots keeps nobody waiting, and is not begun against anybody's word (P03, N05)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from django_reliable_jobs import control
from django_reliable_jobs.models import Job
from django_reliable_jobs.worker.leases.waiting import FRESH
from tests.support import look
from tests.support.fleet import Fleet, wait_until
from tests.support.probes import jobs
from tests.support.probes.models import Mark


def said(label: str) -> None:
    Mark.objects.create(label=label, job_id=0, token=0, attempt=0, pid=0)


def unfinished(name: str) -> int:
    return Job.objects.filter(name=name).exclude(status="DONE").count()


@pytest.mark.parametrize("prefetch", ["auto", 400])
def test_what_is_held_behind_long_jobs_goes_to_an_idle_worker(fleet: Fleet, prefetch: object) -> None:
    """P03, N05: a worker learns that jobs are short, then all of its slots get long ones with short ones behind them."""
    jobs.noop.enqueue_many([(number,) for number in range(500)])
    long = jobs.meet.enqueue_many([("long",)] * 4)
    short = jobs.noop.enqueue_many([(number,) for number in range(300)])
    settings = {"PREFETCH": prefetch, "LEASE": 30, "HEARTBEAT": 10}
    busy = fleet.start("--slots", "4", settings=settings)
    look.marked("long begins", 4)
    fleet.start("--slots", "4", settings=settings)
    look.all_done(short)
    assert unfinished("probes.meet") == 4, "the long ones still run"
    assert set(Job.objects.filter(pk__in=short).values_list("attempts", flat=True)) == {1}
    said("long go")
    look.all_done(long)
    assert busy.stop() == 0


def test_a_busy_worker_hands_back_once_and_claims_no_more(fleet: Fleet) -> None:
    """P03: it would claim the same jobs again and again. Each claim of a job draws a token, so tokens count claims."""
    jobs.noop.enqueue_many([(number,) for number in range(300)])
    long = jobs.meet.enqueue_many([("long",)] * 2)
    short = jobs.noop.enqueue_many([(number,) for number in range(300)])
    worker = fleet.start("--slots", "2", settings={"PREFETCH": 100, "LEASE": 30, "HEARTBEAT": 10})
    look.marked("long begins", 2)
    waiting = Job.objects.filter(pk__in=short, status="QUEUED", attempts=0)
    wait_until(lambda: waiting.count() == 300 and waiting.filter(fencing_token__gt=0).exists(), "the hand-back")
    before = max(Job.objects.values_list("fencing_token", flat=True))
    for number in range(20):
        jobs.noop.enqueue(number)  # news, each of which would be a reason to claim
    listened = jobs.note.using(queue="other").enqueue("never here")
    wait_until(lambda: look.sql("SELECT busy = 2 FROM django_reliable_jobs_worker")[0][0], "the worker's row")
    assert Job.objects.filter(fencing_token__gt=before).count() == 0
    assert waiting.count() == 300
    said("long go")
    look.all_done([*long, *short, listened])
    assert worker.stop() == 0


@pytest.mark.parametrize("how", ["pause", "cancel", "expire"])
def test_what_is_held_behaves_as_waiting(fleet: Fleet, how: str) -> None:
    """P03: it is not run after its queue was paused, after it was cancelled, or after it has expired."""
    long = jobs.meet.enqueue("long")
    short = [jobs.note.using(queue="short", expires=2.0 if how == "expire" else None).enqueue("ran") for _ in range(20)]
    fleet.start("--slots", "1", settings={"PREFETCH": 50, "LEASE": 30, "HEARTBEAT": 10})
    look.marked("long begins")
    acts: dict[str, Callable[[], object]] = {
        "pause": lambda: control.pause_queue("short"),
        "cancel": lambda: control.cancel([job.pk for job in short]),
        "expire": lambda: wait_until(lambda: look.sql("SELECT clock_timestamp() > %s", short[-1].expires_at)[0][0]),
    }
    acts[how]()
    time.sleep(2 * FRESH)  # for so long what a claim has found is good
    said("long go")
    look.all_done([long])
    status = {"pause": "QUEUED", "cancel": "CANCELLED", "expire": "CANCELLED"}[how]
    held = Job.objects.filter(pk__in=[job.pk for job in short])
    wait_until(lambda: held.filter(status=status).count() == 20, lambda: look.described(short))
    assert set(held.values_list("attempts", "losses")) == {(0, 0)}
    assert not any(look.marks(job) for job in short)
    if how == "pause":
        control.resume_queue("short")
        look.all_done(short)
