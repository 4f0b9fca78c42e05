"""The scenes of the guards again with real workers: jobs and cron runs whose pod is stopped or killed."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from django.db import connection

from django_reliable_jobs.models import CronRun, CronSchedule, Job, JobStatus
from testproject.pgbouncer import PgBouncer
from tests.processes.conftest import fleet
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.guards.app.jobs import credits_each_once, writes_late
from tests.support.guards.app.models import Entry, Sheet
from tests.support.guards.valkey import Valkey
from tests.support.look import all_done, fresh
from tests.support.schedules.tools import schedule

__all__ = ["fleet"]


@pytest.fixture(params=["direct", "pgbouncer"])
def pods(request: pytest.FixtureRequest, fleet: Fleet, valkey: Valkey) -> Fleet:
    """Workers that reach the database straight, or through PgBouncer in transaction mode with two connections."""
    fleet.env["VALKEY_URL"] = valkey.url
    if request.param == "pgbouncer":
        pooler: PgBouncer = request.getfixturevalue("pgbouncer")
        fleet.env["DATABASE_URL"] = pooler.url(connection.settings_dict["NAME"])
    Sheet.objects.create(name="thing")
    Sheet.objects.create(name="total")
    return fleet


def said(token: int) -> Counter[str]:
    return Counter(Entry.objects.filter(token=token).values_list("label", flat=True))


def owner() -> Entry:
    """The newest one that has begun."""
    return wait_until(lambda: Entry.objects.filter(label="begins").order_by("token").last(), "somebody to begin")


WRITTEN = Counter(["begins", "fenced", "fence: written", "row: written", "redis: written"])
REFUSED = Counter(["begins", "fence: StaleToken", "row: StaleToken", "redis: refused"])


def assert_the_stalled_one_is_refused(job: Job, pods: Fleet, first: JobWorker, valkey: Valkey) -> None:
    """The job has begun in the first pod. That one stands still until another one has done the job."""
    old = owner()
    assert old.pid == first.worker_pid
    os.kill(old.pid, signal.SIGSTOP)
    second = pods.start("--slots", "2")
    all_done([job])
    done = fresh(job)
    new = owner()
    assert (new.pid, new.token) == (second.worker_pid, done.fencing_token)
    assert new.token > old.token
    assert said(new.token) == WRITTEN

    Entry.objects.create(label="go on")
    os.kill(old.pid, signal.SIGCONT)
    wait_until(lambda: said(old.token) == REFUSED, lambda: said(old.token))
    assert Sheet.objects.get(name="thing").text == f"by {new.token}"
    with valkey.client() as client:
        assert client.hgetall("thing") == {"token": str(new.token), "value": f"by {new.token}"}
    assert said(new.token) == WRITTEN
    found = fresh(job)
    assert (found.status, found.fencing_token, found.losses) == (JobStatus.DONE, new.token, 1)
    assert first.process.poll() is None, "the pod that was stopped lives on"


def test_a_job_whose_pod_was_stopped_wakes_with_an_old_token_and_its_writes_are_refused(
    pods: Fleet, valkey: Valkey
) -> None:
    first = pods.start("--slots", "2", "--grace", "60")
    assert_the_stalled_one_is_refused(writes_late.enqueue(), pods, first, valkey)


def test_a_cron_run_whose_pod_was_stopped_wakes_with_an_old_token_and_its_writes_are_refused(
    pods: Fleet, valkey: Valkey
) -> None:
    schedule("late", "@every 1", job=writes_late.name, overlap="skip")
    first = pods.start("--slots", "2", "--grace", "60")
    token = owner().token
    CronSchedule.objects.update(paused=True)
    job = Job.objects.get(fencing_token=token)
    run = CronRun.objects.get(job_id=job.pk)
    assert_the_stalled_one_is_refused(job, pods, first, valkey)
    run.refresh_from_db()
    assert (run.outcome, run.job_id) == ("enqueued", job.pk)
    assert Job.objects.filter(scheduled_for=job.scheduled_for).count() == 1, "it is the same run, done again"


def test_sixty_of_a_hundred_records_are_done_and_after_a_crash_the_retry_does_the_forty(pods: Fleet) -> None:
    """Killed at record 61, between its effect and its commit."""
    worker = pods.start("--slots", "2")
    job = credits_each_once.enqueue(100, dies_at=60)
    all_done([job])
    done = fresh(job)
    assert (done.attempts, done.losses) == (2, 1)
    records = Entry.objects.filter(label__startswith="record ").order_by("pk")
    assert Counter(records.values_list("label", flat=True)) == Counter(f"record {n}" for n in range(100))
    assert Sheet.objects.get(name="total").total == 100
    by_owner = Counter(records.values_list("token", flat=True))
    assert len(by_owner) == 2
    assert [count for _, count in sorted(by_owner.items())] == [60, 40]
    assert max(by_owner) == done.fencing_token
    assert len(set(records.values_list("pid", flat=True))) == 2
    assert len(worker.started()) == 2, "its process was killed, and replaced"
