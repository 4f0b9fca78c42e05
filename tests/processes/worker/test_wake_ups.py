"""Notifications save waiting, and nothing depends on them (design, protocol 11; case FR-P07)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from django.db import transaction

from django_reliable_jobs import control
from django_reliable_jobs.models import JobStatus
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.look import all_done, backends, fresh, sql, terminate
from tests.support.probes import jobs as probes

SLOW_POLL = {"LEASE": 40, "HEARTBEAT": 1, "POLL": 20}
LISTENER = "reliable_jobs listener"
#: Far below POLL, far above what it takes.
AT_ONCE = 8.0


@pytest.fixture(scope="module")
def worker(crew: Fleet) -> Iterator[JobWorker]:
    started = crew.start("--slots", "2", settings=SLOW_POLL)
    listening(started)
    yield started
    assert started.stop() == 0


def listening(worker: JobWorker) -> int:
    """Wait until its listener is connected and its first looks are over; the backend's pid."""
    found = wait_until(lambda: backends(LISTENER), worker.tail)
    wait_until(
        lambda: (
            sql(
                "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'idle' AND query LIKE 'LISTEN%%'",
                found[-1][0],
            )
            or sql("SELECT 1 FROM pg_stat_activity WHERE pid = %s AND query LIKE '%%pg_notify%%'", found[-1][0])
        ),
        worker.tail,
    )
    return found[-1][0]


def picked_up_at_once(worker: JobWorker) -> None:
    for _ in range(3):
        begun = time.monotonic()
        all_done([probes.noop.enqueue()], timeout=AT_ONCE)
        assert time.monotonic() - begun < AT_ONCE, worker.tail()


def test_a_job_starts_long_before_the_next_poll(worker: JobWorker) -> None:
    picked_up_at_once(worker)


def test_so_does_a_bulk_and_a_job_enqueued_in_a_transaction(worker: JobWorker) -> None:
    all_done(probes.noop.enqueue_many([(n,) for n in range(500)]), timeout=AT_ONCE)
    with transaction.atomic():
        job = probes.noop.enqueue()
        assert fresh(job).status == JobStatus.QUEUED
    all_done([job], timeout=AT_ONCE)


def test_so_does_a_job_that_is_run_now_or_whose_queue_is_resumed(worker: JobWorker) -> None:
    later = probes.noop.using(delay=3600).enqueue()
    control.run_now(later)
    all_done([later], timeout=AT_ONCE)
    control.pause_queue("default")
    paused = probes.noop.enqueue()
    control.resume_queue("default")
    all_done([paused], timeout=AT_ONCE)


def test_a_storm_of_notifications_is_survived(worker: JobWorker) -> None:
    """Real ones, strange ones and nonsense, some thousand in one transaction."""
    for payload in ("work default 0", "work", "work default", "work  ", "nonsense", "cancel", "", "work x y z -1"):
        sql("SELECT pg_notify('django_reliable_jobs', %s || repeat(' ', i)) FROM generate_series(0, 700) i", payload)
    picked_up_at_once(worker)
    assert "Traceback" not in worker.text


def test_a_listener_whose_connection_was_killed_comes_back(worker: JobWorker) -> None:
    before = listening(worker)
    assert terminate(LISTENER) == 1
    wait_until(lambda: [pid for pid, _ in backends(LISTENER) if pid != before], worker.tail)
    listening(worker)
    picked_up_at_once(worker)


def test_without_listen_it_polls(fleet: Fleet) -> None:
    worker = fleet.start(settings={"LISTEN": False, "POLL": 0.5})
    all_done([probes.noop.enqueue()])
    assert not backends(LISTENER)
    all_done([probes.noop.enqueue()])
    assert worker.stop() == 0
