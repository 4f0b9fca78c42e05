"""Old code meets a new job, or new code an old one (cases FR-P09, P06, N07, U12): it is left to a worker that knows it."""

from __future__ import annotations

import sys
import time

import pytest

from django_reliable_jobs import control
from django_reliable_jobs.models import Job, JobStatus, KnownNames, UnknownName, Worker
from tests.support.factories import JobFactory, ago
from tests.support.fleet import Fleet, wait_until
from tests.support.look import all_done, ended, errors, fresh, marked, sql
from tests.support.probes import jobs as probes

TOMORROW = "probes.thing_of_tomorrow"


def enqueue_unknown(name: str = TOMORROW) -> Job:
    """A job as newer code has enqueued it."""
    job = probes.note.using(delay=3600).enqueue("from tomorrow")
    sql("UPDATE django_reliable_jobs_job SET name = %s, run_at = now() WHERE id = %s", name, job.pk)
    return fresh(job)


def test_an_unknown_job_is_put_back_in_its_place_and_told_once_a_minute(fleet: Fleet) -> None:
    jobs = [enqueue_unknown() for _ in range(3)] + [enqueue_unknown("gone.module.job")]
    worker = fleet.start("--slots", "2", settings={"UNKNOWN_JOB_AFTER": 8})
    good = probes.noop.enqueue_many([(n,) for n in range(20)])
    all_done(good)
    assert fresh(jobs[0]).reason == "unknown job"
    for job in jobs:
        found = fresh(job)
        assert (found.status, found.attempts, found.losses, found.run_at) == (JobStatus.QUEUED, 0, 0, job.run_at)
        assert not errors(job)
    for job in jobs:
        found = ended(job)
        assert (found.status, found.reason, found.run_at) == (JobStatus.DEAD, "unknown job", job.run_at)
        assert "no job is named" in errors(job)[0].error_message
    assert worker.text.count(f"no job is named {TOMORROW!r} here") == 1
    assert "nobody has imported its module" in worker.text
    assert (
        "a @job function 'thing_of_tomorrow' in tests.support.probes.jobs, or in a module that it imports"
        in worker.text
    )
    assert worker.text.count("no job is named 'gone.module.job' here") == 1
    assert "'gone.module', which is the label of no installed app" in worker.text
    wait_until(lambda: not UnknownName.objects.exists())
    assert control.retry(jobs[0]).changed == [jobs[0].pk]
    wait_until(lambda: fresh(jobs[0]).status == JobStatus.DEAD, "to be judged once more")
    assert worker.stop() == 0
    assert len(worker.started()) == 1


@pytest.mark.slow
def test_all_jobs_of_a_removed_name_are_dead_soon_after_the_period_and_cost_others_nothing(fleet: Fleet) -> None:
    """N07: 2,000 rows; before, eight were looked at per pause."""
    JobFactory.create_batch(2000, name="shop.removed", run_at=ago(600))
    workers = [fleet.start(settings={"UNKNOWN_JOB_AFTER": 10}) for _ in range(2)]
    wait_until(lambda: UnknownName.objects.exists())
    began = time.monotonic()
    all_done(probes.noop.enqueue_many([(n,) for n in range(50)]))
    took = time.monotonic() - began
    left = Job.objects.filter(name="shop.removed").exclude(status=JobStatus.DEAD)
    touched = Job.objects.filter(name="shop.removed", reason="unknown job", status=JobStatus.QUEUED).count()
    assert touched <= 2 * 8, "each worker has looked at as many as it has slots"
    assert took < 10
    wait_until(lambda: not left.exists(), lambda: f"{left.count()} jobs", timeout=70)
    assert sum(worker.text.count("DEAD (unknown job)") for worker in workers) <= 2
    assert [worker.stop() for worker in workers] == [0, 0]


NEW_CODE = """
import sys
from django.core.management import execute_from_command_line
import django
django.setup()
from django_reliable_jobs import job
from tests.support.probes.jobs import mark, wait_for_mark

@job(name="probes.thing_of_tomorrow")
def thing(label):
    mark(label)

execute_from_command_line(["manage.py", "jobworker", "--slots", "1"])
"""


def test_a_worker_with_newer_code_runs_it_beside_the_old_one(fleet: Fleet) -> None:
    jobs = [enqueue_unknown() for _ in range(4)]
    old = fleet.start("--slots", "2", settings={"UNKNOWN_JOB_AFTER": 60})
    wait_until(lambda: UnknownName.objects.exists())
    new = fleet.run([sys.executable, "-c", NEW_CODE])
    all_done(jobs)
    for job in jobs:
        assert fresh(job).attempts == 1
    wait_until(lambda: not UnknownName.objects.exists(), "the name to be forgotten")
    assert [old.stop(), new.stop()] == [0, 0]


@pytest.mark.slow
def test_no_job_is_dead_whose_name_a_living_worker_knows_however_long_that_one_is_busy(fleet: Fleet) -> None:
    """P06: two services share a database and a queue; the one that knows the name has no free slot."""
    period = 3
    settings = {"UNKNOWN_JOB_AFTER": period}
    knowing = fleet.run([sys.executable, "-c", NEW_CODE], settings=settings)
    blocker = probes.pairs_up.enqueue("busy", "go on")
    marked("busy")
    other = fleet.start(settings=settings)
    wait_until(lambda: KnownNames.objects.count() == 2)
    jobs = [enqueue_unknown() for _ in range(3)]
    wait_until(lambda: fresh(jobs[0]).reason == "unknown job", "the other one to meet it")
    until = time.monotonic() + 5 * period
    while time.monotonic() < until:
        assert {fresh(job).status for job in jobs} == {JobStatus.QUEUED}
        time.sleep(0.1)
    assert not UnknownName.objects.exists()
    probes.note.using(run_at=ago(900)).enqueue("go on")
    all_done([blocker, *jobs])
    assert [knowing.stop(), other.stop()] == [0, 0]


def test_while_a_worker_of_an_older_version_lives_nothing_is_judged(fleet: Fleet) -> None:
    """It does not say what it knows."""
    old = Worker.objects.create(
        id="00000000-0000-0000-0000-000000000001", host="old", pid=1, version="0.0", slots=8, started_at=ago(0),
        last_seen=ago(0),
    )  # fmt: skip
    job = enqueue_unknown()
    worker = fleet.start(settings={"UNKNOWN_JOB_AFTER": 1})
    wait_until(lambda: UnknownName.objects.filter(met_at__lt=ago(6)).exists())
    assert fresh(job).status == JobStatus.QUEUED
    old.delete()
    assert ended(job).status == JobStatus.DEAD
    assert worker.stop() == 0


def test_a_burst_ends_when_all_that_is_due_is_for_others(fleet: Fleet) -> None:
    jobs = [enqueue_unknown() for _ in range(30)]
    good = probes.noop.enqueue_many([(n,) for n in range(3)])
    assert fleet.burst("--slots", "2").process.returncode == 0
    all_done(good)
    assert {fresh(job).status for job in jobs} == {JobStatus.QUEUED}
