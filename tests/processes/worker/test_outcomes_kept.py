"""A database that does not take an outcome just now (P39): it is kept and offered again while the lease is held."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from django_reliable_jobs.models import JobStatus
from tests.support.fleet import Fleet
from tests.support.look import all_done, ended, fresh, sql
from tests.support.probes import jobs as probes


@pytest.fixture
def damaged(transactional_db: None) -> Iterator[None]:
    """As a damaged page behaves: the settle of jobs with the priority -7 ends with an internal error."""
    sql(
        "CREATE FUNCTION damaged() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'could not read block 5' USING ERRCODE = 'XX000'; END $$"
    )
    sql(
        "CREATE TRIGGER damaged BEFORE UPDATE ON django_reliable_jobs_job FOR EACH ROW"
        " WHEN (OLD.status = 'RUNNING' AND NEW.status <> 'RUNNING' AND OLD.priority = -7) EXECUTE FUNCTION damaged()"
    )
    yield
    mend()


def mend() -> None:
    sql("DROP FUNCTION IF EXISTS damaged() CASCADE")


def test_it_is_recorded_when_the_database_takes_it_again(fleet: Fleet, damaged: None) -> None:
    bad = probes.note.using(priority=-7).enqueue("once")
    worker = fleet.start("--slots", "2")
    worker.logged("is not recorded yet")
    until = time.monotonic() + 3 * 2  # leases of 2 s: it is held for several of them
    while time.monotonic() < until:
        all_done(probes.noop.enqueue_many([(n,) for n in range(10)]))
        assert fresh(bad).status == JobStatus.RUNNING
        time.sleep(0.2)
    token = fresh(bad).fencing_token
    mend()
    done = ended(bad)
    assert (done.status, done.attempts, done.losses, done.fencing_token) == (JobStatus.DONE, 1, 0, token)
    assert worker.text.count("is not recorded yet") == 1, "once a minute"
    assert worker.stop() == 0
