"""Stopping a worker: nothing is lost, nothing runs twice, nobody waits (design, protocol 10; cases L09, L11)."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.models import Job, JobStatus, Worker
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.look import all_done, ended, fresh, marked, marks, sql
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark
from tests.support.probes.stubborn import hangs, hangs_async

#: `SHUTDOWN_CYCLES=200` for a long run, which takes some minutes.
CYCLES = int(os.environ.get("SHUTDOWN_CYCLES", "12"))


def settled(worker: JobWorker) -> None:
    """Wait until the worker has heartbeaten, so that it is fully up."""
    wait_until(lambda: Worker.objects.filter(pk=worker.started()[-1][0]).exists(), worker.tail)


def begin(worker: JobWorker) -> list[Job]:
    """A running job of each kind that takes a second and a half."""
    jobs = [probes.nap.enqueue(1.5, "sync"), probes.anap.enqueue(1.5, "async")]
    marked("sync begins")
    marked("async begins")
    return jobs


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_ends_in_under_a_second_with_status_0(fleet: Fleet, number: signal.Signals) -> None:
    worker = fleet.start()
    settled(worker)
    begun = time.monotonic()
    assert worker.stop(number) == 0
    assert time.monotonic() - begun < 5  # a machine with other things to do; a quiet one takes 0.1 s
    assert not Worker.objects.exists(), "it deleted its row"
    assert "Traceback" not in worker.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_jobs_finish_within_the_grace_time(fleet: Fleet, number: signal.Signals) -> None:
    worker = fleet.start("--grace", "30")
    jobs = begin(worker)
    assert worker.stop(number) == 0
    for job in jobs:
        assert (fresh(job).status, fresh(job).attempts) == (JobStatus.DONE, 1)
    assert len(marks(jobs[0])) == len(marks(jobs[1])) == 2


def test_one_ctrl_c_in_a_terminal_is_one_signal(fleet: Fleet) -> None:
    """It reaches every process of the group; that is no second wish to stop."""
    worker = fleet.start("--grace", "30")
    jobs = begin(worker)
    os.killpg(worker.pid, signal.SIGINT)
    assert worker.wait() == 0
    for job in jobs:
        assert (fresh(job).status, fresh(job).attempts) == (JobStatus.DONE, 1), worker.tail()


def test_nothing_more_is_claimed_after_the_signal(fleet: Fleet) -> None:
    worker = fleet.start("--slots", "4", "--grace", "30")
    running = begin(worker)
    worker.tell()
    worker.logged("stopping")
    late = [probes.note.enqueue("late") for _ in range(5)]
    assert worker.wait() == 0
    all_done(running)
    for job in late:
        assert (fresh(job).status, fresh(job).attempts) == (JobStatus.QUEUED, 0)


@pytest.mark.parametrize("job", [hangs, hangs_async])
@pytest.mark.parametrize("obeys", [True, False])
def test_what_runs_after_the_grace_time_is_handed_back_and_starts_elsewhere(
    fleet: Fleet, job: JobDefinition, obeys: bool
) -> None:
    """No attempt is used; the next worker has it at once, not after a lease."""
    worker = fleet.start("--grace", "0.3", settings={"LEASE": 30, "HEARTBEAT": 10})
    kind = {(hangs, True): "nap", (hangs_async, True): "await", (hangs, False): "swallow everything",
            (hangs_async, False): "block"}[job, obeys]  # fmt: skip
    hanging = job.using(timeout=600).enqueue(kind)
    marked("hangs begins")
    assert worker.stop() == 0, worker.tail()
    handed_back = fresh(hanging)
    assert (handed_back.status, handed_back.attempts, handed_back.losses) == (JobStatus.QUEUED, 0, 0)
    fleet.start("--grace", "0.3", settings={"LEASE": 30, "HEARTBEAT": 10})
    marked("hangs begins", 2, timeout=15)


def test_a_stop_takes_no_longer_than_the_grace_time_and_ten_seconds(fleet: Fleet) -> None:
    """Even where a handler swallows everything; and the log has said so at the start (P14)."""
    worker = fleet.start("--grace", "1")
    assert "a stop takes up to 11 s" in worker.text
    hangs.using(timeout=600).enqueue("swallow everything")
    marked("hangs begins")
    begun = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - begun < 11


def test_a_handler_that_does_not_stop_is_handed_back_as_the_last_thing(fleet: Fleet) -> None:
    """When its job can start elsewhere all else of its process has ended: the worker's row is gone, other jobs are back (P33)."""
    sql("CREATE TABLE IF NOT EXISTS seen_at_hand_back (workers bigint, held bigint)")
    sql(
        "CREATE OR REPLACE FUNCTION look_at_hand_back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO seen_at_hand_back SELECT (SELECT count(*) FROM django_reliable_jobs_worker),"
        " (SELECT count(*) FROM django_reliable_jobs_job WHERE status = 'RUNNING' AND id <> NEW.id); RETURN NEW; END $$"
    )
    sql(
        "CREATE TRIGGER look_at_hand_back AFTER UPDATE ON django_reliable_jobs_job FOR EACH ROW"
        " WHEN (OLD.status = 'RUNNING' AND NEW.status = 'QUEUED' AND NEW.name = 'probes.hangs')"
        " EXECUTE FUNCTION look_at_hand_back()"
    )
    try:
        worker = fleet.start("--grace", "0.5", "--slots", "2")
        job = hangs.using(timeout=600).enqueue("swallow everything")
        marked("hangs begins")
        settled(worker)
        other = probes.nap.using(timeout=600).enqueue(600, "other")
        marked("other begins")
        assert worker.stop() == 0
        assert (fresh(job).status, fresh(other).status) == (JobStatus.QUEUED, JobStatus.QUEUED)
        assert sql("SELECT workers, held FROM seen_at_hand_back") == [(0, 0)]
    finally:
        sql("DROP TRIGGER look_at_hand_back ON django_reliable_jobs_job")
        sql("DROP FUNCTION look_at_hand_back()")
        sql("DROP TABLE seen_at_hand_back")


def test_a_second_signal_skips_the_grace_time(fleet: Fleet) -> None:
    worker = fleet.start("--grace", "300")
    hanging = [hangs.using(timeout=600).enqueue("nap"), hangs_async.using(timeout=600).enqueue("await")]
    marked("hangs begins", 2)
    worker.tell()
    worker.logged("stopping")
    worker.tell()
    assert worker.wait(timeout=30) == 0
    for job in hanging:
        assert (fresh(job).status, fresh(job).attempts) == (JobStatus.QUEUED, 0)


def test_two_signals_at_once_skip_the_grace_time_too(fleet: Fleet) -> None:
    worker = fleet.start("--grace", "300")
    hanging = hangs.using(timeout=600).enqueue("sleep")
    marked("hangs begins")
    worker.tell(signal.SIGINT)
    worker.tell(signal.SIGTERM)
    assert worker.wait(timeout=30) == 0
    assert (fresh(hanging).status, fresh(hanging).attempts) == (JobStatus.QUEUED, 0)


def test_a_worker_process_stops_in_order_when_its_supervisor_is_killed(fleet: Fleet) -> None:
    worker = fleet.start("--grace", "30")
    process = psutil.Process(worker.worker_pid)
    jobs = begin(worker)
    worker.tell(signal.SIGKILL)
    worker.logged("the supervisor is gone")
    process.wait(60)
    for job in jobs:
        assert (fresh(job).status, fresh(job).attempts) == (JobStatus.DONE, 1)


def test_a_killed_worker_is_replaced_and_its_jobs_start_again_at_once(fleet: Fleet) -> None:
    """Its supervisor knows that it is dead: nobody waits for the lease."""
    worker = fleet.start(settings={"LEASE": 60, "HEARTBEAT": 20})
    job = probes.meet.enqueue("meeting")
    first = marked("meeting begins")[0]
    os.kill(worker.worker_pid, signal.SIGKILL)
    second = marked("meeting begins", 2, timeout=30)[1]
    assert second.token > first.token
    Mark.objects.create(label="meeting go")
    assert (ended(job).attempts, ended(job).losses) == (2, 1)
    assert worker.stop() == 0


def test_jobs_of_a_killed_worker_start_again_at_once_even_if_its_successor_dies_too(fleet: Fleet) -> None:
    worker = fleet.start(settings={"LEASE": 60, "HEARTBEAT": 20})
    job = probes.meet.enqueue("meeting")
    marked("meeting begins")
    for count in (2, 3):
        os.kill(worker.worker_pid, signal.SIGKILL)
        wait_until(lambda n=count: len(worker.started()) >= n, worker.tail)
    Mark.objects.create(label="meeting go")
    assert ended(job, timeout=50).status == JobStatus.DONE
    assert worker.stop() == 0


def test_a_worker_process_that_is_told_directly_stops_in_order_and_is_replaced(fleet: Fleet) -> None:
    worker = fleet.start("--grace", "30")
    jobs = begin(worker)
    os.kill(worker.worker_pid, signal.SIGTERM)
    wait_until(lambda: len(worker.started()) == 2, worker.tail)
    for job in jobs:
        assert (fresh(job).status, fresh(job).attempts) == (JobStatus.DONE, 1)
    assert worker.stop() == 0


def test_a_worker_that_crashes_at_its_start_is_started_again_with_pauses(fleet: Fleet) -> None:
    worker = fleet.start()
    for count in range(1, 4):
        wait_until(lambda n=count: len(worker.started()) >= n, worker.tail)
        os.kill(worker.worker_pid, signal.SIGKILL)
    wait_until(lambda: len(worker.started()) >= 4, worker.tail)
    assert worker.stop() == 0


def test_several_processes_stop_together(fleet: Fleet) -> None:
    worker = fleet.start("--processes", "3", "--slots", "2", "--grace", "30")
    wait_until(lambda: len(worker.started()) == 3, worker.tail)
    jobs = [probes.nap.enqueue(1, f"job {n}") for n in range(6)]
    for n in range(6):
        marked(f"job {n} begins")
    assert len({mark.pid for mark in Mark.objects.all()}) == 3
    assert worker.stop() == 0
    assert {fresh(job).status for job in jobs} == {JobStatus.DONE}
    assert not worker.processes()


def test_start_and_stop_at_any_moment_leave_no_job_with_a_dead_worker(fleet: Fleet) -> None:
    """SIGTERM 0 to 50 ms after the command was started, or after its worker said that it is there."""
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    probes.noop.using(max_attempts=None).enqueue_many([(n,) for n in range(20_000)])
    for cycle in range(CYCLES):
        worker = fleet.start("--slots", "4", "--grace", "2", ready=False)
        if chance.random() < 0.8:
            worker.ready()
        time.sleep(chance.uniform(0, 0.05))  # the jitter is what is tested
        begun = time.monotonic()
        code = worker.stop()
        # Before it handles signals the default is to die at once; it holds nothing then.
        assert code in (0, -signal.SIGTERM), f"seed {seed}, cycle {cycle}: {worker.tail()}"
        assert time.monotonic() - begun < 20, f"seed {seed}, cycle {cycle}: {worker.tail()}"
        running = Job.objects.filter(status=JobStatus.RUNNING)
        assert not running.exists(), f"seed {seed}, cycle {cycle}: {list(running.values())[:3]} {worker.tail()}"
    assert not sql("SELECT 1 FROM django_reliable_jobs_job WHERE losses > 0 OR attempts > 1")


# -- as process 1

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def can_unshare() -> bool:
    return (
        shutil.which("unshare") is not None and not subprocess.run([*UNSHARE, "true"], capture_output=True).returncode
    )


as_process_1 = pytest.mark.skipif(not can_unshare(), reason="needs `unshare --pid`, that is, root on Linux")


def inside(worker: JobWorker) -> psutil.Process:
    """The process that is number 1 in its own world."""
    return wait_until(lambda: psutil.Process(worker.pid).children(), worker.tail)[0]


@as_process_1
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_as_process_1_it_stops_in_order(fleet: Fleet, number: signal.Signals) -> None:
    worker = fleet.start("--grace", "30", prefix=UNSHARE)
    jobs = begin(worker)
    inside(worker).send_signal(number)
    assert worker.wait() == 0, worker.tail()
    for job in jobs:
        assert (fresh(job).status, fresh(job).attempts) == (JobStatus.DONE, 1)


@as_process_1
def test_as_process_1_a_second_signal_ends_it(fleet: Fleet) -> None:
    worker = fleet.start("--grace", "300", prefix=UNSHARE)
    hanging = hangs.using(timeout=600).enqueue("sleep")
    marked("hangs begins")
    first = inside(worker)
    first.send_signal(signal.SIGTERM)
    worker.logged("stopping")
    first.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=30) == 0
    assert (fresh(hanging).status, fresh(hanging).attempts) == (JobStatus.QUEUED, 0)


@as_process_1
def test_as_process_1_it_reaps_orphans(fleet: Fleet) -> None:
    worker = fleet.start(prefix=UNSHARE)
    all_done([probes.orphans.enqueue(10)])
    first = inside(worker)

    marked("orphaned")
    wait_until(lambda: len(first.children(recursive=True)) == 1, lambda: first.children(recursive=True))
    all_done([probes.stubborn.acts_up.enqueue("subprocess")])
    first.send_signal(signal.SIGTERM)
    assert worker.wait() == 0


@as_process_1
def test_under_a_shell_that_execs_it_stops_in_order(fleet: Fleet) -> None:
    """What the documentation shows for images whose entry point is a script."""
    script = 'exec "$0" manage.py jobworker --grace 30'
    worker = fleet.run([*UNSHARE, "sh", "-c", script, sys.executable])
    jobs = begin(worker)
    inside(worker).send_signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert {fresh(job).status for job in jobs} == {JobStatus.DONE}
