"""What a worker holds and has not begun is asked for again before it begins (P03). Here it is never handed back for its age."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections
from django.db.models import F, QuerySet

from django_reliable_jobs import control
from django_reliable_jobs.models import Job
from django_reliable_jobs.worker.leases import engine, waiting
from django_reliable_jobs.worker.options import WorkerOptions
from django_reliable_jobs.worker.processes.process import WorkerProcess
from tests.support.probes import jobs
from tests.support.probes.models import Mark
from tests.support.sessions import PATIENCE, wait_until

HELD = 20


@pytest.fixture
def worker(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    """With one slot, which is busy until somebody says "go"; HELD jobs of the queue "short" wait behind it in memory."""
    settings.RELIABLE_JOBS = {"PREFETCH": HELD, "LISTEN": False, "POLL": 0.1, "GRACE": 5}
    monkeypatch.setattr(waiting, "HOLD", 3600.0)
    monkeypatch.setattr(engine, "STALLED", 3600.0)  # a slow machine takes long to claim ahead
    jobs.meet.using(priority=1).enqueue("meeting")
    jobs.note.using(queue="short", expires=3600).enqueue_many([(str(number),) for number in range(HELD)])
    made = WorkerProcess(WorkerOptions(slots=1), uuid4())
    thread = threading.Thread(target=made.run)
    monkeypatch.setattr(
        "django_reliable_jobs.worker.leases.engine.STALLED", 3600.0
    )  # a slow machine takes long to claim ahead
    thread.start()
    try:
        wait_until(lambda: short().filter(status="RUNNING").count() == HELD, "the short jobs to be held")
        wait_until(lambda: Mark.objects.filter(label="meeting begins").exists(), "the slot to be busy")
        yield made
    finally:
        Mark.objects.get_or_create(label="meeting go", job_id=0, token=0, attempt=0, pid=0)
        made.request_stop()
        thread.join(PATIENCE)
        connections.close_all()
    assert not thread.is_alive()


def short() -> QuerySet[Job]:
    return Job.objects.filter(queue="short")


def go() -> None:
    Mark.objects.create(label="meeting go", job_id=0, token=0, attempt=0, pid=0)


def ran() -> int:
    return Mark.objects.filter(job_id__in=list(short().values_list("pk", flat=True))).count()


ACTS: dict[str, tuple[Callable[[], object], str]] = {
    "its queue is paused": (lambda: control.pause_queue("short"), "QUEUED"),
    "it is cancelled": (lambda: control.cancel(short()), "CANCELLED"),
    "it expires": (lambda: short().update(expires_at="2020-01-01T00:00Z"), "CANCELLED"),
    "somebody else has it": (
        lambda: short().update(
            status="QUEUED", fencing_token=0, locked_by=None, locked_until=None, attempts=0, first_started_at=None,
            run_at=F("run_at") + timedelta(hours=1),
        ), "QUEUED"),
}  # fmt: skip


@pytest.mark.parametrize("what", ACTS)
def test_what_is_held_is_not_begun_after(worker: WorkerProcess, what: str) -> None:
    act, status = ACTS[what]
    act()
    time.sleep(waiting.FRESH)  # for so long a claim's answer is good
    go()
    wait_until(lambda: worker.held_leases.nothing_held, "it to be handed back")
    wait_until(lambda: short().filter(status=status).count() == HELD, f"all are {status}")
    assert ran() == 0
    assert set(short().values_list("attempts", "first_started_at")) == {(0, None)}


def test_what_is_held_for_long_begins_once_it_was_asked_for(worker: WorkerProcess) -> None:
    time.sleep(2 * waiting.FRESH)
    go()
    wait_until(lambda: short().filter(status="DONE", attempts=1).count() == HELD, "all of them")
    assert ran() == HELD


def test_of_many_that_are_held_only_the_cancelled_are_not_begun(worker: WorkerProcess) -> None:
    chosen = list(short().values_list("pk", flat=True)[::3])
    control.cancel(chosen)
    time.sleep(waiting.FRESH)
    go()
    wait_until(lambda: short().filter(status__in=["QUEUED", "RUNNING", "FAILED"]).count() == 0, "all of them")
    assert set(short().filter(status="CANCELLED").values_list("pk", flat=True)) == set(chosen)
    assert short().filter(status="DONE").count() == HELD - len(chosen)
