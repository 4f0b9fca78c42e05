"""Old code meets a new job (case FR-P09): it is left to a worker that knows it."""

from __future__ import annotations

import sys

from django_reliable_jobs import control
from django_reliable_jobs.models import Job, JobStatus
from tests.probes import jobs as probes
from tests.processes.fleet import Fleet, wait_until
from tests.processes.look import all_done, ended, errors, fresh, sql


def enqueue_unknown(name: str = "probes.thing_of_tomorrow") -> Job:
    """A job as newer code has enqueued it."""
    job = probes.note.using(delay=3600).enqueue("from tomorrow")
    sql("UPDATE django_reliable_jobs_job SET name = %s, run_at = now() WHERE id = %s", name, job.pk)
    return job


def test_an_unknown_job_is_put_back_without_an_attempt_and_told_once_a_minute(fleet: Fleet) -> None:
    jobs = [enqueue_unknown() for _ in range(3)] + [enqueue_unknown("gone.module.job")]
    worker = fleet.start("--slots", "2", settings={"UNKNOWN_JOB_AFTER": 2})
    good = probes.noop.enqueue_many([(n,) for n in range(20)])
    all_done(good)
    wait_until(lambda: all(fresh(job).unknown_since for job in jobs))
    for job in jobs:
        found = fresh(job)
        assert (found.status, found.reason, found.attempts, found.losses) == (JobStatus.QUEUED, "unknown job", 0, 0)
        assert not errors(job)
    for job in jobs:
        found = ended(job)
        assert (found.status, found.reason) == (JobStatus.DEAD, "unknown job")
        assert "no job is named" in errors(job)[0].error_message
    assert worker.text.count("no job is named 'probes.thing_of_tomorrow' here") == 1
    assert worker.text.count("no job is named 'gone.module.job' here") == 1
    assert worker.stop() == 0
    assert len(worker.started()) == 1
    assert control.retry(jobs[0]).changed == [jobs[0].pk]
    assert fresh(jobs[0]).unknown_since is None


NEW_CODE = """
import sys
from django.core.management import execute_from_command_line
import django
django.setup()
from django_reliable_jobs import job
from tests.probes.jobs import mark

@job(name="probes.thing_of_tomorrow")
def thing(label):
    mark(label)

execute_from_command_line(["manage.py", "jobworker", "--slots", "2"])
"""


def test_a_worker_with_newer_code_runs_it_beside_the_old_one(fleet: Fleet) -> None:
    jobs = [enqueue_unknown() for _ in range(4)]
    old = fleet.start("--slots", "2", settings={"UNKNOWN_JOB_AFTER": 24})  # a quarter of it is the pause
    wait_until(lambda: all(fresh(job).unknown_since for job in jobs))
    control.run_now(Job.objects.filter(pk__in=[job.pk for job in jobs]))
    new = fleet.run([sys.executable, "-c", NEW_CODE])
    # Both go on asking; each time the old one gets hold of them, it puts them back for some seconds.
    all_done(jobs, timeout=120)
    for job in jobs:
        assert (fresh(job).attempts, fresh(job).unknown_since) == (1, None)
    assert [old.stop(), new.stop()] == [0, 0]
