"""A lease is kept while its worker lives, and lost when it does not (design, protocol 6; cases L01, L03)."""

from __future__ import annotations

import os
import signal

import pytest

from django_reliable_jobs.models import Job, JobStatus
from tests.support.fleet import Fleet, wait_until
from tests.support.look import all_done, ended, fresh, marked, marks, sql
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark
from tests.support.probes.stubborn import blocks_its_loop, busy

LEASE = 3
SETTINGS = {"LEASE": LEASE, "HEARTBEAT": 1, "POLL": 0.5}


@pytest.fixture
def rival(crew: Fleet) -> None:
    """Somebody else who would take a job whose lease has run out, and run it at once."""
    if len(crew.workers) == 0:
        crew.start("--slots", "8", "--exclude-queues", "busy", settings=SETTINGS)
        crew.start("--slots", "9", "--queues", "busy", settings=SETTINGS)


def once(jobs: list[Job]) -> None:
    all_done(jobs)
    for job in jobs:
        found = fresh(job)
        assert (found.attempts, found.losses) == (1, 0), found.args


def test_a_job_that_is_longer_than_its_lease_runs_once(crew: Fleet, rival: None) -> None:
    jobs = [probes.nap.enqueue(3 * LEASE, "long"), probes.anap.enqueue(3 * LEASE, "long")]
    ends = set()
    wait_until(lambda: ends.update(_lease_ends(jobs[0])) or fresh(jobs[0]).status == JobStatus.DONE)
    once(jobs)
    assert len(ends) >= 5, "it is renewed about each third of its length"


def _lease_ends(job: Job) -> set[object]:
    return {row[0] for row in sql("SELECT locked_until FROM django_reliable_jobs_job WHERE id = %s", job.pk)} - {None}


@pytest.mark.parametrize("how", ["async sleep", "spin", "query"])
def test_a_handler_that_keeps_its_process_busy_does_not_stop_the_heartbeat(crew: Fleet, rival: None, how: str) -> None:
    """(a) a coroutine that blocks its loop, (b) pure Python in eight threads, (d) a long query."""
    seconds = 2.5 * LEASE
    if how == "async sleep":
        jobs = [blocks_its_loop.using(queue="busy").enqueue(seconds) for _ in range(3)]
    else:
        jobs = [busy.using(queue="busy").enqueue(how, seconds) for _ in range(8 if how == "spin" else 2)]
    once(jobs)
    assert "is lost" not in "".join(worker.text for worker in crew.workers)


def test_a_stopped_worker_loses_its_job_and_its_late_outcome_is_refused(fleet: Fleet) -> None:
    """Case L01: SIGSTOP for longer than the lease."""
    first = fleet.start("--slots", "2", settings=SETTINGS)
    job = probes.meet.enqueue("stopped")
    begun = marked("stopped begins")[0]
    os.kill(first.worker_pid, signal.SIGSTOP)
    second = fleet.start("--slots", "2", settings=SETTINGS)
    again = marked("stopped begins", 2)[1]
    assert again.token > begun.token
    assert again.attempt == 2
    os.kill(first.worker_pid, signal.SIGCONT)
    first.logged("its lease is lost")
    Mark.objects.create(label="stopped go")
    done = ended(job)
    assert (done.status, done.attempts, done.losses) == (JobStatus.DONE, 2, 1)
    assert str(done.locked_by) == second.started()[-1][0]
    first.logged("is dropped")
    assert [worker.stop() for worker in (first, second)] == [0, 0]
    assert fresh(job).fencing_token == again.token
    assert "1 refused" in first.text


def test_a_stopped_worker_that_comes_back_within_its_lease_loses_nothing(fleet: Fleet) -> None:
    worker = fleet.start(settings={"LEASE": 30, "HEARTBEAT": 1})
    job = probes.nap.enqueue(3, "brief")
    marked("brief begins")
    os.kill(worker.worker_pid, signal.SIGSTOP)
    wait_until(lambda: sql("SELECT 1 WHERE clock_timestamp() > %s + interval '1.5 s'", fresh(job).started_at))
    os.kill(worker.worker_pid, signal.SIGCONT)
    once([job])
    assert marks(job) == ["brief begins", "brief ends"]


def test_a_stopped_worker_starts_nothing_that_it_had_waiting(fleet: Fleet) -> None:
    """It held jobs ahead of its only slot; when it wakes they are somebody else's."""
    first = fleet.start("--slots", "1", settings={**SETTINGS, "PREFETCH": 5}, env={"PROBES_HOLD_AHEAD": "1"})
    meeting = probes.meet.enqueue("ahead")
    marked("ahead begins")
    waiting = [probes.note.enqueue(f"waiting {n}") for n in range(5)]
    wait_until(lambda: Job.objects.filter(status=JobStatus.RUNNING).count() == 6, first.tail)
    os.kill(first.worker_pid, signal.SIGSTOP)
    second = fleet.start("--slots", "2", settings=SETTINGS)
    all_done(waiting)
    Mark.objects.create(label="ahead go")
    all_done([meeting])
    os.kill(first.worker_pid, signal.SIGCONT)
    wait_until(lambda: "is dropped" in first.text, first.tail)  # the meeting, which it had begun
    assert [worker.stop() for worker in (first, second)] == [0, 0]
    for job in waiting:
        assert len(marks(job)) == 1, "it ran once, in the second worker"


def test_what_a_deploy_hands_back_expires_only_if_no_handler_had_begun(fleet: Fleet) -> None:
    """P05: one job runs and others wait in memory for its slot when the worker is told to stop."""
    env = {"PROBES_HOLD_AHEAD": "1"}
    worker = fleet.start("--slots", "1", "--grace", "0", settings={**SETTINGS, "PREFETCH": 5}, env=env)
    begun = probes.nap.using(expires=3600).enqueue(60, "long")
    marked("long begins")
    waiting = [probes.note.using(expires=3600).enqueue(f"waiting {n}") for n in range(3)]
    wait_until(lambda: Job.objects.filter(status=JobStatus.RUNNING).count() == 4, worker.tail)
    assert worker.stop() == 0
    sql("UPDATE django_reliable_jobs_job SET expires_at = statement_timestamp() RETURNING id")
    assert fresh(begun).status == JobStatus.QUEUED
    fleet.start("--slots", "1", settings=SETTINGS)
    wait_until(lambda: Job.objects.filter(reason="expired").count() == 3)
    assert {fresh(job).attempts for job in waiting} == {0}
    wait_until(lambda: len(marks(begun)) == 2)


def test_two_workers_never_run_one_job_at_the_same_time(fleet: Fleet) -> None:
    workers = [fleet.start("--slots", "4", settings={"LEASE": 30}) for _ in range(3)]
    ids = probes.note.enqueue_many([(str(n),) for n in range(600)])
    all_done(ids)
    assert Mark.objects.count() == 600
    assert len(set(Mark.objects.values_list("job_id", flat=True))) == 600
    assert len(set(Mark.objects.values_list("pid", flat=True))) == 3, "all of them had a share"
    assert len(set(Mark.objects.values_list("token", flat=True))) == 600
    assert [worker.stop() for worker in workers] == [0, 0, 0]
