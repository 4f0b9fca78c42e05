"""A worker goes on whatever the rows hold (P01): what cannot be read fails that job's attempt, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from django_reliable_jobs.models import Job, JobStatus
from tests.support.factories import JobFactory
from tests.support.fleet import Fleet, wait_until
from tests.support.look import all_done, errors
from tests.support.poison import CHANGES, drop_the_constraint, poison
from tests.support.probes import jobs as probes

NAMES = ("probes.noop", "probes.isolated_coroutine", "probes.isolated_atomic", "probes.moves")


@pytest.fixture
def _anything_goes(transactional_db: None) -> Iterator[None]:
    again = drop_the_constraint()
    yield
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE django_reliable_jobs_job CASCADE")
        cursor.execute(again)


@pytest.mark.usefixtures("_anything_goes")
def test_every_kind_of_bad_row_at_once(fleet: Fleet) -> None:
    changes = [change for change in CHANGES if "_key" not in change]
    for change in changes:
        poison(change, JobFactory(max_attempts=1).pk)
        poison(change, JobFactory(max_attempts=1, running=True).pk)
    calls = [change for change in changes if change.startswith(("args = '", "args = (", "kwargs = "))]
    unreadable = []
    for name in NAMES:
        for change in calls:
            unreadable.append(JobFactory(name=name, max_attempts=1))
            poison(change, unreadable[-1].pk)
    good = probes.noop.enqueue_many([(n,) for n in range(20)])
    worker = fleet.start("--slots", "4")
    all_done(good)
    keys = [job.pk for job in unreadable]
    finished = (JobStatus.DEAD, JobStatus.DONE)
    wait_until(lambda: Job.objects.filter(pk__in=keys, status__in=finished).count() == len(keys), worker.tail)
    for job in unreadable:
        if Job.objects.values_list("status", flat=True).get(pk=job.pk) == JobStatus.DEAD:
            [error] = errors(job)
            assert "payload" in error.error_message or error.error_kind == "TypeError"
    all_done(probes.noop.enqueue_many([(n,) for n in range(20)]))
    assert worker.stop() == 0
    assert len(worker.started()) == 1, "the first process lived on"
    for part in ("the engine failed", "maintenance failed", "a heartbeat failed"):
        assert part not in worker.text, worker.tail()
