"""A handler's mess on its connection is gone before the next job of the same thread (cases D05, D11)."""

from __future__ import annotations

from typing import Any

import pytest

from django_reliable_jobs.models import Job, JobStatus
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.look import all_done, backends, ended, errors, marks, sql
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark
from tests.support.probes.sessions import (
    STATEMENTS,
    backend_async,
    counts_rows,
    counts_rows_async,
    leave,
    report_session,
)

LIKE_NEW = {
    "statement_timeout": "0", "lock_timeout": "0", "search_path": '"$user", public', "time zone": "UTC",
    "own role": True, "isolation": "read committed", "read only": "off", "no temporary table": True,
    "advisory locks": 0, "prepared": 0, "channels": 0, "cursors": 0, "in atomic": False, "autocommit": True,
    "queries logged": 0, "debug cursor": False, "status": "INTRANS",
}  # fmt: skip


@pytest.fixture(scope="module")
def single(crew: Fleet) -> JobWorker:
    """One slot, so one thread; its connection is kept from job to job if nothing is wrong with it."""
    return crew.start("--slots", "1", "--queues", "one", env={"TEST_CONN_MAX_AGE": "none"})


def after(job: Job) -> dict[str, Any]:
    """What the job that runs next finds."""
    ended(job)
    found = ended(report_session.using(queue="one").enqueue())
    assert found.status == JobStatus.DONE, errors(found)[0].traceback
    return dict(found.value)


def same(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "backend"} | {"status": "INTRANS"}


@pytest.mark.parametrize("what", [*STATEMENTS, "open atomic", "lock table", "autocommit off", "closed",
    "integrity error swallowed outside", "error swallowed without autocommit", "cursor mid-transaction", "copy",
    "closed in atomic", "broken", "execute wrapper", "debug cursor", "raw set"])  # fmt: skip
def test_the_next_job_finds_the_connection_like_new(single: JobWorker, what: str) -> None:
    left = leave.using(queue="one").enqueue(what)
    assert same(after(left)) == LIKE_NEW
    assert ended(left).status == JobStatus.DONE, errors(left)[0].traceback
    assert len(single.started()) == 1


@pytest.mark.parametrize("what", ["open atomic", "lock table", "autocommit off", "begin", "statement_timeout",
    "error swallowed without autocommit", "advisory lock", "broken", "closed in atomic"])  # fmt: skip
def test_a_failed_attempt_is_recorded_with_its_own_error_whatever_it_left(single: JobWorker, what: str) -> None:
    left = leave.using(queue="one").enqueue(f"{what} and raise")
    assert same(after(left)) == LIKE_NEW
    (attempt,) = errors(left)
    assert (attempt.error_kind, attempt.error_message) == ("ValueError", f"after {what}")
    assert ended(left).status == JobStatus.DEAD


def test_an_error_that_broke_the_transaction_is_what_is_recorded(single: JobWorker) -> None:
    left = leave.using(queue="one").enqueue("error swallowed inside")
    assert same(after(left)) == LIKE_NEW
    (attempt,) = errors(left)
    assert "InternalError" in attempt.error_kind
    assert "current transaction is aborted" in attempt.error_message
    assert not Mark.objects.filter(label="after the error").exists()


def test_what_an_open_transaction_wrote_is_rolled_back(single: JobWorker) -> None:
    for what in ("open atomic", "autocommit off"):
        ended(leave.using(queue="one").enqueue(what))
    assert not Mark.objects.filter(label__in=["in an open atomic", "without autocommit"]).exists()


def test_a_connection_with_which_nothing_is_wrong_is_kept(single: JobWorker) -> None:
    """With CONN_MAX_AGE None; or else the tests above prove nothing but that connections are closed."""
    found = {after(probes.noop.using(queue="one").enqueue())["backend"] for _ in range(3)}
    assert len(found) == 1
    found = {ended(backend_async.using(queue="one").enqueue()).value for _ in range(3)}
    assert len(found) == 1


@pytest.mark.parametrize("age", ["0", "60"])
def test_connections_are_bounded_and_the_query_log_does_not_grow(fleet: Fleet, age: str) -> None:
    """Case D05: 20 slots, 1,000 jobs that use the ORM, in threads and in coroutines, under DEBUG."""
    slots = 20
    worker = fleet.start("--slots", str(slots), env={"TEST_CONN_MAX_AGE": age, "DEBUG": "1", "LOG_LEVEL": "INFO"})
    ids = counts_rows.enqueue_many([(n,) for n in range(700)])
    ids += counts_rows_async.enqueue_many([(n,) for n in range(300)])
    done = Job.objects.filter(pk__in=ids, status=JobStatus.DONE)
    most = 0

    def finished() -> bool:
        nonlocal most
        most = max(most, len(backends()))
        return done.count() == len(ids)

    wait_until(finished, worker.tail)
    # A slot may use one connection itself and one in its thread for coroutines; the worker's own are a fixed few.
    assert most <= 2 * slots + 8
    assert set(done.values_list("result", flat=True)) <= {0, 1}, "the statements of one job, not of all before it"
    idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = ''"
    if age == "0":
        wait_until(lambda: sql(idle)[0][0] <= 2, lambda: backends())
    else:
        assert sql(idle)[0][0] > 2
    assert worker.stop() == 0
    wait_until(lambda: not [b for b in backends() if b[1].startswith("reliable_jobs")], lambda: backends())


def test_with_djangos_connection_pool_jobs_run_and_give_connections_back(fleet: Fleet) -> None:
    """Case D06: more bad jobs than the pool has connections; a leaked one would be missed."""
    options = '{"pool": {"min_size": 1, "max_size": 4, "timeout": 20}}'
    worker = fleet.start("--slots", "2", env={"DATABASE_OPTIONS": options, "TEST_CONN_MAX_AGE": "0"})
    bad = [leave.enqueue(what) for what in ("open atomic", "statement_timeout", "autocommit off", "begin", "broken",
                                            "lock table", "closed in atomic", "copy") for _ in range(3)]  # fmt: skip
    for job in bad:
        assert ended(job).status == JobStatus.DONE, errors(job)[0].traceback
    notes = [probes.note.enqueue("good") for _ in range(10)] + [probes.anote.enqueue("good") for _ in range(10)]
    all_done(notes)
    found = ended(report_session.enqueue())
    assert same(found.value) == LIKE_NEW
    forks = [probes.stubborn.acts_up.enqueue("fork with a pool") for _ in range(3)]
    for job in forks:
        assert ended(job).result == "0 0 0 0", errors(job)
    all_done([probes.note.enqueue("after the forks") for _ in range(10)])
    assert all(len(marks(job)) == 1 for job in notes)
    assert worker.stop() == 0
    assert len(worker.started()) == 1
