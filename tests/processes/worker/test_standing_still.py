"""A process in which nothing goes on any more is ended, and its jobs go on elsewhere; one that only waits is left alone.

Case P02: a stop exception lands between the acquire of a lock and its `try`, in any library, and the engine, the watchdog
and the other slots wait for it for ever, while the heartbeat goes on extending their leases.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from django.db import connection

from django_reliable_jobs.models import Job, JobStatus
from tests.support.fleet import Fleet, wait_until
from tests.support.look import all_done, backends, ended, fresh, marked, sql, terminate
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark
from tests.support.probes.standing import keeps_the_gil, leaves_a_lock_taken, logs_in_a_loop

LEASE = 3
SETTINGS = {"LEASE": LEASE, "HEARTBEAT": 1}


def pass_leases(count: float) -> None:
    """How long it is, is what is tested; by the database's clock, which a stopped or busy test process does not stop."""
    (begun,) = sql("SELECT clock_timestamp()")[0]
    wait_until(lambda: sql("SELECT 1 WHERE clock_timestamp() > %s + make_interval(secs => %s)", begun, count * LEASE))


@pytest.mark.parametrize("what", ["logging", "threading"])
def test_a_lock_that_a_stopped_handler_leaves_taken_ends_the_process_and_not_the_work(fleet: Fleet, what: str) -> None:
    worker = fleet.start("--slots", "2", "--grace", "1", settings=SETTINGS)
    first = worker.worker_pid
    other = probes.meet.using(timeout=None).enqueue("beside")
    marked("beside begins")
    culprit = leaves_a_lock_taken.enqueue(what)
    marked(f"{what} begins")
    wait_until(lambda: worker.worker_pid != first, worker.tail)
    worker.logged("a part of it stood still")
    # Where everything stood, for whoever looks for the cause.
    worker.logged("thread has not moved during")
    worker.logged("most recent call first")
    good = probes.note.enqueue_many([(f"good {n}",) for n in range(20)])
    all_done(good)
    Mark.objects.create(label="beside go")
    all_done([other])
    assert (fresh(other).attempts, fresh(other).losses) == (2, 1)
    found = ended(culprit)
    assert (found.status, found.attempts) == (JobStatus.DEAD, 1)
    assert worker.stop() == 0


def test_a_handler_that_keeps_the_gil_ends_its_process_and_its_job_comes_back(fleet: Fleet) -> None:
    worker = fleet.start("--slots", "2", settings=SETTINGS)
    first = worker.worker_pid
    job = keeps_the_gil.enqueue(600)
    marked("keeps the GIL")
    wait_until(lambda: worker.worker_pid != first, worker.tail)
    worker.logged(f"was killed by its supervisor: nothing in it has moved for {LEASE} s")
    assert f"it runs the jobs #{job.pk}" in worker.text
    all_done([job])
    assert (fresh(job).attempts, fresh(job).losses) == (2, 1)
    assert worker.stop() == 0


def test_a_handler_that_keeps_the_gil_for_less_than_a_lease_is_left_alone(fleet: Fleet) -> None:
    worker = fleet.start("--slots", "2", settings={"LEASE": 30, "HEARTBEAT": 1})
    job = keeps_the_gil.enqueue(5)
    all_done([job])
    assert (fresh(job).attempts, len(worker.started())) == (1, 1)
    assert worker.stop() == 0


@pytest.mark.parametrize("who", ["the worker", "all"])
def test_a_process_that_is_stopped_for_leases_goes_on_when_it_is_continued(fleet: Fleet, who: str) -> None:
    """SIGSTOP, Ctrl-Z: no beat goes through meanwhile, and the kernel says why nothing moves."""
    worker = fleet.start("--slots", "2", settings=SETTINGS)
    all_done([probes.note.enqueue("before")])
    pids = [worker.worker_pid] if who == "the worker" else [process.pid for process in worker.processes()]
    for _ in range(3):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        pass_leases(2)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        all_done(probes.note.enqueue_many([("between",)] * 2))
    pass_leases(2)
    all_done(probes.note.enqueue_many([("after",)] * 4))
    assert len(worker.started()) == 1, worker.tail()
    assert worker.stop() == 0


@pytest.fixture
def dead_hosts() -> Iterator[list[int]]:
    """Ports where a connection is made and nobody ever answers."""
    with ExitStack() as stack:
        ports = []
        for _ in range(3):
            silent = stack.enter_context(socket.socket())
            silent.bind(("127.0.0.1", 0))
            silent.listen(100)
            ports.append(silent.getsockname()[1])
        yield ports


def test_a_connect_that_tries_three_dead_hosts_first_does_not_end_the_process(
    fleet: Fleet, dead_hosts: list[int]
) -> None:
    """It takes longer than a lease as short as this, while the heartbeat, on a connection that it has, goes on."""
    found = connection.settings_dict
    hosts = ",".join(["127.0.0.1"] * 3 + [str(found["HOST"])])
    ports = ",".join([*map(str, dead_hosts), str(found["PORT"])])
    address, _, query = fleet.env["DATABASE_URL"].partition("?")
    options = "&".join(part for part in query.split("&") if not part.startswith(("host=", "port=")))
    url = f"{address}?host={hosts}&port={ports}" + (f"&{options}" if options else "")
    worker = fleet.start("--slots", "2", env={"DATABASE_URL": url}, settings={**SETTINGS, "LISTEN": False})
    all_done([probes.noop.enqueue()], timeout=120)  # it needs no connection of its own
    for n in range(2):
        assert terminate("reliable_jobs engine")
        all_done([probes.noop.enqueue(n)], timeout=120)
    assert len(worker.started()) == 1, worker.tail()
    assert len(backends("reliable_jobs heartbeat")) == 1
    worker.stop()


def test_a_process_in_which_an_exception_was_raised_from_outside_is_replaced_when_it_is_idle(fleet: Fleet) -> None:
    worker = fleet.start("--slots", "2", settings={"LEASE": 30, "HEARTBEAT": 1})
    first = worker.worker_pid
    running = probes.meet.using(timeout=None).enqueue("still running")
    marked("still running begins")
    late = probes.just_in_time.using(timeout=0.5, max_attempts=1).enqueue(60)
    assert ended(late).reason == "deadline exceeded"
    all_done(probes.note.enqueue_many([("beside",)] * 20))
    assert worker.worker_pid == first, "not while something runs"
    Mark.objects.create(label="still running go")
    all_done([running])
    wait_until(lambda: worker.worker_pid != first, worker.tail)
    worker.logged("handlers were stopped by an exception")
    all_done([probes.note.enqueue("after")])
    assert not Job.objects.filter(losses__gt=0).exists()
    assert worker.stop() == 0


@pytest.mark.slow
def test_handlers_that_are_stopped_while_they_log_do_not_stop_the_others(fleet: Fleet) -> None:
    """The storm in which the case was found. Whether a process is frozen in it is chance; that the work goes on is not."""
    worker = fleet.start("--slots", "8", "--grace", "2", settings=SETTINGS)
    storm = [logs_in_a_loop.enqueue() for _ in range(48)]
    good = probes.note.using(max_attempts=None).enqueue_many([(f"good {n}",) for n in range(48)])
    all_done(good, timeout=180)
    assert {ended(job, timeout=180).status for job in storm} == {JobStatus.DEAD}
    begun = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - begun < 60
