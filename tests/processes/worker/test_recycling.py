"""A worker process that is replaced by a fresh one loses nothing and keeps nobody waiting (protocol 10; P04)."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from django_reliable_jobs.models import Job, JobStatus, Worker
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.look import all_done, ended, fresh, marked, marks, sql
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark
from tests.support.probes.stubborn import hangs


def alive(worker: JobWorker) -> list[int]:
    """The worker processes of its supervisor that have not ended."""
    return [pid for _, pid in worker.started() if psutil.pid_exists(pid) and not _is_zombie(pid)]


def _is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def trickle(worker: JobWorker, processes: int) -> None:
    """Short jobs, until so many worker processes have been started."""

    def another() -> bool:
        all_done(probes.noop.enqueue_many([(n,) for n in range(5)]))
        return len(worker.started()) >= processes

    wait_until(another, worker.tail)


def meeting(label: str) -> tuple[Job, int]:
    """A job that runs until the test says so, and the process that runs it."""
    job = probes.meet.using(timeout=None).enqueue(label)
    return job, marked(f"{label} begins")[0].pid


def test_a_long_job_is_not_cut_by_a_recycle(fleet: Fleet) -> None:
    worker = fleet.start("--max-jobs-per-process", "10", "--grace", "0.5", "--slots", "2")
    job, first = meeting("long")
    trickle(worker, 2)
    time.sleep(1.5)  # three times the grace time, in which nothing may happen to it
    trickle(worker, 2)
    assert alive(worker)[0] == first
    Mark.objects.create(label="long go")
    assert (ended(job).status, fresh(job).attempts) == (JobStatus.DONE, 1)
    assert marks(job) == ["long begins", "long ends"], worker.tail()
    assert not sql("SELECT 1 FROM django_reliable_jobs_job WHERE losses > 0")
    assert worker.stop() == 0


def test_a_place_has_one_predecessor_at_most_and_its_successor_works_on_meanwhile(fleet: Fleet) -> None:
    worker = fleet.start("--max-jobs-per-process", "5", "--slots", "2")
    job, first = meeting("long")
    trickle(worker, 2)
    all_done(probes.noop.enqueue_many([(n,) for n in range(100)]))
    assert len(worker.started()) == 2, "the successor is not replaced while its predecessor lives"
    assert len(alive(worker)) == 2
    Mark.objects.create(label="long go")
    ended(job)
    wait_until(lambda: first not in alive(worker), worker.tail)
    trickle(worker, 3)
    assert worker.stop() == 0


def test_what_has_not_begun_goes_to_the_successor_at_a_recycle(fleet: Fleet) -> None:
    """One slot, held by a long job; what was claimed ahead of it does not wait for its end."""
    worker = fleet.start("--max-jobs-per-process", "1", "--slots", "1", settings={"PREFETCH": 10})
    job, _ = meeting("long")
    short = probes.noop.enqueue_many([(n,) for n in range(10)])
    all_done(short)
    assert fresh(job).status == JobStatus.RUNNING
    Mark.objects.create(label="long go")
    all_done([job])
    assert worker.stop() == 0


def test_a_worker_above_max_rss_waits_for_what_it_runs(fleet: Fleet) -> None:
    worker = fleet.start("--max-rss", "10", "--slots", "2", "--grace", "0.5")
    job, first = meeting("long")
    wait_until(lambda: len(worker.started()) >= 2, worker.tail)
    assert Worker.objects.filter(pid=first, stopping=True).exists() or wait_until(
        lambda: Worker.objects.filter(pid=first, stopping=True).exists(), worker.tail
    )
    trickle(worker, 2)
    Mark.objects.create(label="long go")
    assert (ended(job).status, fresh(job).attempts) == (JobStatus.DONE, 1)
    assert worker.stop() == 0


def test_threads_written_off_have_the_process_replaced_without_cutting_others(fleet: Fleet) -> None:
    worker = fleet.start("--slots", "2", "--grace", "0.5")
    job, first = meeting("long")
    for _ in range(2):
        ended(hangs.using(timeout=0.5, max_attempts=1).enqueue("swallow everything"))
    wait_until(lambda: len(worker.started()) >= 2, worker.tail)
    assert (fresh(job).status, fresh(job).attempts) == (JobStatus.RUNNING, 1)
    Mark.objects.create(label="long go")
    assert (ended(job).status, fresh(job).attempts) == (JobStatus.DONE, 1)
    wait_until(lambda: first not in alive(worker), worker.tail)
    assert worker.stop() == 0


@pytest.mark.parametrize("twice", [False, True])
def test_a_signal_cuts_a_predecessor_too(fleet: Fleet, twice: bool) -> None:
    worker = fleet.start("--max-jobs-per-process", "5", "--slots", "2", "--grace", "300" if twice else "0.5")
    job, _ = meeting("long")
    trickle(worker, 2)
    assert len(alive(worker)) == 2
    worker.tell()
    if twice:
        worker.logged("stopping: 1 jobs are running")
        worker.tell()
    assert worker.wait() == 0
    assert (fresh(job).status, fresh(job).attempts) == (JobStatus.QUEUED, 0)
    assert not alive(worker)


def test_a_predecessor_stops_in_order_when_the_supervisor_is_killed(fleet: Fleet) -> None:
    worker = fleet.start("--max-jobs-per-process", "5", "--slots", "2", "--grace", "30")
    job, _ = meeting("long")
    trickle(worker, 2)
    worker.tell(signal.SIGKILL)
    wait_until(lambda: worker.text.count("the supervisor is gone") == 2, worker.tail)
    Mark.objects.create(label="long go")
    all_done([job])
    wait_until(lambda: not alive(worker), worker.tail)


def test_jobs_of_a_killed_predecessor_start_again_at_once(fleet: Fleet) -> None:
    """Its successor, which runs already, is told."""
    worker = fleet.start(
        "--max-jobs-per-process", "5", "--slots", "2", settings={"LEASE": 60, "HEARTBEAT": 20, "POLL": 1}
    )
    job, first = meeting("long")
    trickle(worker, 2)
    os.kill(first, signal.SIGKILL)
    marked("long begins", 2, timeout=30)
    Mark.objects.create(label="long go")
    assert (ended(job).attempts, fresh(job).losses) == (2, 1)
    assert len(worker.started()) == 2
    assert worker.stop() == 0


def test_a_stopped_supervisor_does_not_keep_a_worker_from_its_work(fleet: Fleet) -> None:
    """The worker has taken its share of jobs and asks for a successor; nobody answers, so it goes on."""
    worker = fleet.start("--max-jobs-per-process", "5", "--slots", "2")
    worker.tell(signal.SIGSTOP)
    try:
        all_done(probes.noop.enqueue_many([(n,) for n in range(50)]))
    finally:
        worker.tell(signal.SIGCONT)
    wait_until(lambda: len(worker.started()) >= 2, worker.tail)
    assert worker.stop() == 0


# -- limited tasks


def test_a_burst_goes_on_in_a_fresh_process_while_the_first_one_still_runs_a_job(fleet: Fleet) -> None:
    job = probes.meet.using(timeout=None, priority=10).enqueue("long")
    short = probes.noop.enqueue_many([(n,) for n in range(30)])
    worker = fleet.start("--burst", "--max-jobs-per-process", "5", "--slots", "2", settings={"PREFETCH": 0})
    all_done(short)
    assert worker.process.poll() is None
    Mark.objects.create(label="long go")
    assert worker.wait() == 0
    assert marks(job) == ["long begins", "long ends"]
    assert len(worker.started()) >= 2


def test_a_burst_starts_no_process_for_nothing(fleet: Fleet) -> None:
    probes.noop.enqueue_many([(n,) for n in range(5)])
    worker = fleet.burst("--max-jobs-per-process", "5", "--slots", "2")
    assert worker.process.returncode == 0
    assert len(worker.started()) == 1


def test_a_burst_runs_what_a_replaced_process_put_back_last(fleet: Fleet) -> None:
    """Its successor has found nothing to do and has ended by then."""
    job = probes.answers.using(timeout=30).enqueue("snooze", 0.0, 3)
    more = [probes.noop.using(priority=-1).enqueue(n) for n in range(3)]
    worker = fleet.burst("--max-jobs-per-process", "1", "--slots", "1", settings={"PREFETCH": 0})
    assert worker.process.returncode == 0, worker.tail()
    all_done([job, *more])


def test_a_burst_with_a_failure_in_a_replaced_process_runs_the_rest_and_exits_with_1(fleet: Fleet) -> None:
    failing = probes.stubborn.raises.using(priority=10).enqueue("SystemExit")
    good = probes.noop.enqueue_many([(n,) for n in range(20)])
    worker = fleet.burst("--max-jobs-per-process", "2", "--slots", "1", settings={"PREFETCH": 0})
    assert worker.process.returncode == 1, worker.tail()
    assert fresh(failing).status == JobStatus.DEAD
    all_done(good)


def test_max_jobs_counts_over_all_processes(fleet: Fleet) -> None:
    ids = probes.noop.enqueue_many([(n,) for n in range(30)])
    worker = fleet.start("--max-jobs", "10", "--max-jobs-per-process", "4", "--slots", "2", ready=False)
    assert worker.wait() == 0, worker.tail()
    assert Job.objects.filter(pk__in=ids, status=JobStatus.DONE).count() == 10
    assert len(worker.started()) == 3, "and none of them runs less than its share"
