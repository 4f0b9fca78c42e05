"""`isolation="process"`: what a handler does to its process is a failed attempt of that job, and of nothing else."""

from __future__ import annotations

import psutil
import pytest

from django_reliable_jobs import control
from django_reliable_jobs.models import Job, JobStatus
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.look import all_done, ended, errors, marked
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark
from tests.support.probes.stubborn import busy


@pytest.fixture(scope="module")
def worker(crew: Fleet) -> JobWorker:
    return crew.start("--slots", "4", "--grace", "2", "--exclude-queues", "single").ready()


@pytest.mark.parametrize(
    ("what", "how"),
    [("exit", "exited with status 7"), ("kill", "was killed by SIGKILL"), ("segfault", "was killed by SIGSEGV")],
)
def test_a_child_that_dies_is_a_failed_attempt_and_the_others_finish(worker: JobWorker, what: str, how: str) -> None:
    good = probes.noop.enqueue_many([(n,) for n in range(20)])
    found = ended(probes.isolated.enqueue(what))
    assert (found.status, found.attempts, found.losses) == (JobStatus.DEAD, 2, 0)
    assert [how in attempt.error_message for attempt in errors(found)] == [True, True]
    all_done(good)


@pytest.mark.parametrize("what", ["spin", "hold the GIL"])
def test_at_its_deadline_a_child_is_killed(worker: JobWorker, what: str) -> None:
    found = ended(probes.isolated.using(timeout=0.5, max_attempts=1).enqueue(what))
    assert (found.status, found.reason) == (JobStatus.DEAD, "deadline exceeded")
    for name in ("isolated spin", "isolated hold the GIL"):
        for pid in Mark.objects.filter(label=name).values_list("pid", flat=True):
            wait_until(lambda pid=pid: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", name)


@pytest.mark.parametrize("what", ["until told", "spin"])
def test_a_cancelled_child_is_told_and_then_killed(worker: JobWorker, what: str) -> None:
    job = probes.isolated.using(timeout=None).enqueue(what)
    wait_until(lambda: Mark.objects.filter(job_id=job.pk).exists(), worker.tail)
    assert control.cancel(job)
    assert ended(job).status == JobStatus.CANCELLED


def test_a_child_over_its_memory_limit_is_a_failed_attempt(worker: JobWorker) -> None:
    assert ended(probes.isolated_glutton.enqueue(1)).status == JobStatus.DONE
    found = ended(probes.isolated_glutton.enqueue(1000))
    assert found.status == JobStatus.DEAD
    (attempt,) = errors(found)
    assert "memory_limit" in attempt.error_message or "MemoryError" in attempt.error_kind


def test_progress_result_and_checkpoint_come_from_the_child(worker: JobWorker) -> None:
    found = ended(probes.isolated.enqueue("resume"))
    assert (found.status, found.attempts, found.value) == (JobStatus.DONE, 2, 60)
    assert found.progress == {"done": 1, "total": 2, "message": "resume"}


def test_coroutine_and_atomic_handlers_run_in_a_child_too(worker: JobWorker) -> None:
    assert ended(probes.isolated_coroutine.enqueue()).value not in (None, worker.worker_pid)
    job = ended(probes.isolated_atomic.enqueue("atomic child"))
    assert job.status == JobStatus.DONE
    assert Mark.objects.get(label="atomic child").pid != worker.worker_pid


def test_a_slot_keeps_its_child_for_the_next_job(crew: Fleet, worker: JobWorker) -> None:
    single = crew.start("--slots", "1", "--queues", "single").ready()
    jobs = [probes.isolated.using(queue="single").enqueue("ok") for _ in range(5)]
    assert len({ended(job).value for job in jobs}) == 1
    assert single.stop() == 0


def test_children_end_with_their_worker(fleet: Fleet) -> None:
    worker = fleet.start("--slots", "2").ready()
    job = probes.isolated.using(timeout=None).enqueue("spin")
    marked("isolated spin")
    child = Mark.objects.get(label="isolated spin", job_id=job.pk).pid
    psutil.Process(worker.worker_pid).kill()
    wait_until(lambda: not psutil.pid_exists(child), worker.tail)
    control.cancel(job)
    worker.stop()


def test_a_handler_that_holds_the_gil_for_longer_than_a_lease_loses_it_and_its_process(fleet: Fleet) -> None:
    """L03 (c), the documented limit: while one C call holds the GIL, no heartbeat goes out."""
    first = fleet.start("--slots", "1").ready()
    job = busy.using(max_attempts=2).enqueue("hold the GIL", 40)
    marked("hold the GIL begins", 2, timeout=120)
    first.logged("was killed by its supervisor", timeout=120)
    found = ended(job, timeout=120)
    assert (found.status, found.reason, found.attempts, found.losses) == (JobStatus.DEAD, "lost", 2, 2)
    assert not Mark.objects.filter(label="hold the GIL ends").exists()


@pytest.mark.slow
def test_memory_does_not_grow_over_100_000_jobs(fleet: Fleet) -> None:
    for _ in range(20):
        probes.noop.enqueue_many([(n,) for n in range(5000)])
    worker = fleet.start("--slots", "8").ready()
    process = psutil.Process(worker.worker_pid)
    done = Job.objects.filter(status=JobStatus.DONE)
    wait_until(lambda: done.count() >= 10_000, worker.tail, timeout=120)
    early = process.memory_info().rss
    wait_until(lambda: done.count() == 100_000, worker.tail, timeout=240)
    grown = (process.memory_info().rss - early) / 2**20
    print(f"RSS after 10,000 jobs {early / 2**20:.1f} MiB, after 100,000 {grown:+.1f} MiB")
    assert grown < 5
    assert worker.stop() == 0
