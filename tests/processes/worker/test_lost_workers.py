"""A handler that takes its process with it (cases L05, L12, L15): counted, bounded, and nobody else's trouble."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from django_reliable_jobs.models import Job, JobStatus
from tests.support.fleet import Fleet, wait_until
from tests.support.look import all_done, ended, errors, fresh, marked
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark
from tests.support.probes.stubborn import dies


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_job_that_kills_its_worker_is_dead_after_its_attempts_and_the_others_finish(fleet: Fleet, how: str) -> None:
    killer = dies.enqueue(how)
    good = probes.noop.using(max_attempts=None).enqueue_many([(n,) for n in range(20)])
    worker = fleet.start("--slots", "2", settings={"LEASE": 10, "HEARTBEAT": 2})
    found = ended(killer, timeout=90)
    assert (found.status, found.attempts) == (JobStatus.DEAD, 3)
    attempts = errors(killer)
    assert [attempt.attempt for attempt in attempts] == [1, 2, 3]
    # Twice it took a worker with it; then it ran in a child process, whose death is a failed attempt of its own.
    assert [attempt.error_kind for attempt in attempts] == ["WorkerLost", "WorkerLost", "ChildDied"]
    assert found.losses == 2
    assert Mark.objects.filter(label=f"{how} dies").count() == 3
    all_done(good)
    assert worker.stop() == 0
    assert len(worker.started()) == 3, "two workers were lost, the third one lived on"


def test_with_attempts_used_up_a_lost_job_is_dead_as_lost(fleet: Fleet) -> None:
    killer = dies.using(max_attempts=1).enqueue("kill")
    worker = fleet.start("--slots", "2", settings={"LEASE": 10, "HEARTBEAT": 2})
    found = ended(killer)
    assert (found.status, found.reason, found.attempts, found.losses) == (JobStatus.DEAD, "lost", 1, 1)
    assert worker.stop() == 0


def test_without_a_supervisor_left_the_lease_runs_out_and_another_worker_goes_on(fleet: Fleet) -> None:
    first = fleet.start("--slots", "2")
    job = probes.meet.enqueue("orphaned")
    marked("orphaned begins")
    first.destroy()
    second = fleet.start("--slots", "2")
    marked("orphaned begins", 2)
    Mark.objects.create(label="orphaned go")
    all_done([job])
    assert (fresh(job).attempts, fresh(job).losses) == (2, 1)
    assert second.stop() == 0


def test_what_a_killed_process_held_and_had_not_begun_keeps_its_attempts(fleet: Fleet) -> None:
    """Case L15: starts are what counts. Its supervisor knows what had begun."""
    ids = probes.note.enqueue_many([("flows",)] * 1200)
    worker = fleet.start("--slots", "2", settings={"LEASE": 30, "HEARTBEAT": 10, "PREFETCH": 20})
    done = Job.objects.filter(status=JobStatus.DONE)
    for enough in (200, 500, 800):
        wait_until(lambda enough=enough: done.count() > enough, worker.tail)
        os.kill(worker.worker_pid, signal.SIGKILL)
    all_done(ids, timeout=120)
    starts = Counter(Mark.objects.filter(label="flows").values_list("job_id", flat=True))
    found = list(Job.objects.all())
    # One whose handler was killed before it could say that it had begun; each slot had one at most.
    assert sum(job.attempts - starts[job.pk] for job in found) <= 3 * 2
    assert all(job.attempts >= starts[job.pk] for job in found)
    assert "had not begun are handed back" in worker.text
    assert worker.stop() == 0
