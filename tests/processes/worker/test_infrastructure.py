"""What the database does to a job is not the job's fault (cases D04, P10, P12, P08, P19, N10, N15)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_reliable_jobs.models import Job, JobStatus
from testproject.postgres import EmbeddedPostgres
from tests.chaos.proxy import Proxy
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.look import all_done, ended, errors, fresh, marked, marks, sql
from tests.support.probes import failover, transactions
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark

KEPT = {"TEST_CONN_MAX_AGE": "none"}


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("failover") / "read-only"


@pytest.fixture(scope="module")
def worker(crew: Fleet, read_only: Path) -> JobWorker:
    env = KEPT | {"PROBES_READ_ONLY": str(read_only), "TEST_OTHER_DATABASE": crew.env["DATABASE_URL"]}
    return crew.start("--slots", "1", env=env)


def handed_back(job: Job) -> Job:
    found = wait_until(
        lambda: Job.objects.filter(pk=job.pk, infrastructure_failures=1).first(), lambda: fresh(job).__dict__
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    "definition", [failover.writes, failover.writes_async, failover.writes_isolated, failover.writes_atomic],
    ids=lambda definition: definition.name,
)  # fmt: skip
def test_a_connection_that_became_read_only_is_given_up_and_costs_no_attempt(
    worker: JobWorker, read_only: Path, definition: Any
) -> None:
    """Kept connections stay open over a failover and refuse every write."""
    read_only.touch()
    try:
        all_done([failover.backend_after_an_error.enqueue()])  # whatever is open is closed, the next one is read-only
        job = definition.enqueue()
        found = handed_back(job)
        assert (found.status, found.reason, found.attempts) == (JobStatus.FAILED, "infrastructure", 0)
    finally:
        read_only.unlink()
    done = ended(job)
    assert (done.status, done.attempts, done.infrastructure_failures, marks(job)) == (
        JobStatus.DONE, 1, 0, ["written"],
    )  # fmt: skip
    (attempt,) = errors(job)
    assert "read-only transaction" in attempt.error_message


def test_never_on_the_last_attempt(worker: JobWorker, read_only: Path) -> None:
    read_only.touch()
    try:
        failover.backend_after_an_error.enqueue()  # its connection is closed, the next one is read-only
        job = ended(failover.writes_once.enqueue())
    finally:
        read_only.unlink()
    (attempt,) = errors(job)
    assert (job.status, job.attempts) == (JobStatus.DEAD, 1)
    assert "[the database takes no writes; it was the last attempt]" in attempt.error_message
    all_done([failover.writes.enqueue()])


@pytest.mark.parametrize("how", ["its own connection ended", "its own connection ended, wrapped"])
def test_a_lost_connection_uses_no_attempt(worker: JobWorker, how: str) -> None:
    job = failover.fails.enqueue(how)
    found = handed_back(job)
    assert (found.status, found.reason, found.attempts) == (JobStatus.FAILED, "infrastructure", 0)
    assert "terminating connection" in errors(job)[0].traceback
    all_done([failover.writes.enqueue()])


def test_the_lost_lease_of_a_guard_uses_no_attempt(worker: JobWorker) -> None:
    """Case P22."""
    job = failover.fails.enqueue("the lease of its guard is lost")
    found = handed_back(job)
    assert (found.status, found.reason, found.attempts) == (JobStatus.FAILED, "infrastructure", 0)


@pytest.mark.parametrize("how", ["it wants a read-only transaction", "another database ended",
                                 "another database ended, wrapped", "a statement that takes too long"])  # fmt: skip
def test_what_only_looks_like_it_is_the_jobs_own(worker: JobWorker, how: str) -> None:
    job = failover.fails.enqueue(how)
    found = wait_until(lambda: Job.objects.filter(pk=job.pk, status=JobStatus.FAILED).first())
    assert found is not None
    assert (found.reason, found.attempts, found.infrastructure_failures) == ("", 1, 0), errors(job)[0].traceback
    all_done([failover.writes.enqueue()])


def test_a_connection_with_an_error_is_not_used_again(worker: JobWorker) -> None:
    """One of which the server says that it is fine may still be the wrong server's."""
    first = ended(failover.backend_after_an_error.enqueue()).value
    second, third = (ended(failover.backend_now.enqueue()).value for _ in range(2))
    assert first != second == third


@pytest.mark.parametrize(("culprit", "witness"), [
    (failover.fails_elsewhere, probes.noop),
    (failover.fails_elsewhere_async, probes.anote),
    (failover.fails_elsewhere_isolated, failover.isolated_noop),
], ids=["thread", "coroutine", "isolated"])  # fmt: skip
def test_another_database_that_falls_silent_after_an_error_does_not_hold_the_slot(
    fleet: Fleet, postgres: EmbeddedPostgres, culprit: Any, witness: Any
) -> None:
    """Nobody asks the silent server whether its connection is still good (case P10)."""
    with Proxy(("127.0.0.1", postgres.port)) as proxy:
        url = postgres.url(connection.settings_dict["NAME"], tcp=True).replace(f":{postgres.port}", f":{proxy.port}")
        worker = fleet.start("--slots", "1", env=KEPT | {"TEST_OTHER_DATABASE": url})
        job = culprit.enqueue()
        marked("failed elsewhere")
        with proxy.frozen():
            Mark.objects.create(label="frozen")
            assert ended(job).status == JobStatus.DEAD
            all_done([witness.enqueue(*(["after"] if witness is probes.anote else []))], timeout=30)
        assert worker.stop() == 0


def test_with_autocommit_off_in_the_settings_jobs_are_committed(fleet: Fleet) -> None:
    """Case P08."""
    worker = fleet.start("--slots", "2", env={"TEST_AUTOCOMMIT": "no"})
    jobs = [probes.note.enqueue("plain"), probes.anote.enqueue("coroutine"), probes.isolated.enqueue("child")]
    jobs.append(transactions.moves.enqueue("atomic"))
    all_done(jobs)
    assert [marks(job) for job in jobs] == [["plain"], ["coroutine"], ["isolated child"], ["atomic"]]
    assert worker.stop() == 0


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_whatever_isolation_level_the_server_gives_by_default(fleet: Fleet, level: str) -> None:
    """Case P12: a heartbeat writes the row while the atomic job runs."""
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    sql(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    try:
        worker = fleet.start("--slots", "4")
        jobs = [failover.holds.enqueue(2.5) for _ in range(3)] + [failover.has_state.enqueue() for _ in range(5)]
        all_done(jobs)
        assert {fresh(job).attempts for job in jobs} == {1}, [errors(job) for job in jobs]
        assert worker.stop() == 0
        assert "could not serialize" not in worker.text
    finally:
        sql(f"ALTER DATABASE {name} RESET default_transaction_isolation")


def pool(most: int, timeout: float = 20) -> dict[str, str]:
    options = {"pool": {"min_size": 1, "max_size": most, "timeout": timeout}}
    return {"DATABASE_OPTIONS": json.dumps(options), "TEST_CONN_MAX_AGE": "0"}


def test_the_state_of_an_atomic_job_needs_no_second_connection_of_the_pool(fleet: Fleet) -> None:
    """Case P19."""
    worker = fleet.start("--slots", "2", env=pool(2, timeout=5))
    jobs = [failover.has_state.enqueue() for _ in range(10)]
    all_done(jobs)
    assert {fresh(job).infrastructure_failures for job in jobs} == {0}
    assert "couldn't get a connection" not in worker.text
    assert "the pool of the database" not in worker.text
    assert worker.stop() == 0


def test_waiting_for_a_connection_of_the_pool_is_not_the_jobs_fault(fleet: Fleet) -> None:
    """Case N23."""
    worker = fleet.start("--slots", "3", env=pool(1, timeout=0.5))
    worker.logged("the pool of the database 'default' has at most 1 connections, and this process has 3 slots")
    jobs = [failover.holds.enqueue(1.5) for _ in range(5)]
    all_done(jobs)
    assert {fresh(job).attempts for job in jobs} == {1}
    assert not errors(jobs[-1])
    assert worker.text.count("could not begin and is handed back") == 1
    assert worker.stop() == 0


def test_a_projects_query_wrapper_sees_the_queries_of_every_job(fleet: Fleet) -> None:
    """Case N10: installed when the connection is opened, it stays for as long as that is open."""
    worker = fleet.start("--slots", "1", env=KEPT | {"PROBES_COUNT_QUERIES": "1"})
    seen = [ended(failover.seen.enqueue()).value for _ in range(5)]
    assert [after - before for before, after in zip(seen, seen[1:], strict=False)] == [1] * 4
    ended(failover.backend_after_an_error.enqueue())  # the connection is opened anew
    before = ended(failover.seen.enqueue()).value
    assert ended(failover.seen.enqueue()).value == before + 1
    assert worker.stop() == 0


def test_what_a_handler_sets_on_a_wrapper_that_is_not_djangos_is_gone(fleet: Fleet) -> None:
    """Case N15."""
    env = KEPT | {"TEST_OTHER_DATABASE": fleet.env["DATABASE_URL"], "TEST_OTHER_ENGINE": "tests.support.probes.tenants"}
    worker = fleet.start("--slots", "1", env=env)
    assert [ended(failover.leaves_a_schema.enqueue()).value for _ in range(3)] == ["public"] * 3
    assert worker.stop() == 0
