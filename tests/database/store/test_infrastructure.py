"""Infrastructure's failures in the rows, and statements that are given up (cases D04, P23, P40)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from django_reliable_jobs.connections.own_connection import own_connection
from django_reliable_jobs.connections.statement_deadline import StatementDeadline
from django_reliable_jobs.store.exchange import ClaimRequest, Settlement, exchange
from django_reliable_jobs.store.settle_atomic import settle
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.outcome import ErrorRecord
from tests.support.factories import JobFactory, lease_of
from tests.support.fleet import wait_until
from tests.support.look import sql
from tests.support.sessions import Session
from tests.support.store import portable

pytestmark = pytest.mark.django_db(transaction=True)

ERROR = ErrorRecord("OperationalError", "gone", "")


@pytest.mark.parametrize("implementation", [exchange, portable.exchange])
@pytest.mark.parametrize(
    ("given", "counted", "attempts"),
    [
        (outcome.infrastructure(5, ERROR), 3, 0), (outcome.DONE, 0, 1), (outcome.snoozed(5), 0, 0),
        (outcome.RELEASED, 2, 0), (outcome.UNBEGUN, 2, 0), (outcome.dead("", ERROR), 2, 1),
        (outcome.failed(5, ERROR, last_attempt=False), 2, 1),
    ],
)  # fmt: skip
def test_failures_are_counted_and_forgotten_after_a_success(
    implementation: object, given: outcome.Outcome, counted: int, attempts: int
) -> None:
    job = JobFactory(running=True, infrastructure_failures=2)
    settled = implementation("default", job.locked_by, 30.0, [Settlement(lease_of(job), given)], ClaimRequest()).settled  # type: ignore[operator]
    assert settled
    job.refresh_from_db()
    assert (job.infrastructure_failures, job.attempts) == (counted, attempts)


def test_after_its_settle_an_atomic_job_holds_its_row_for_a_moment_only() -> None:
    """Case P23: its worker is cut off between the settle and the commit."""
    job = JobFactory(running=True)
    with pytest.raises(DatabaseError), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '1h'")
        assert settle("default", job.locked_by, Settlement(lease_of(job), outcome.DONE), idle=0.2)
        with Session() as other:
            assert other.sql("SELECT id FROM django_reliable_jobs_job WHERE id = %s FOR UPDATE", [job.pk])
    connection.close()
    job.refresh_from_db()
    assert job.status == "RUNNING"


def test_a_statement_that_is_given_up_ends_on_the_server() -> None:
    """Case P40."""
    patience, name = StatementDeadline(0.2), f"given up {uuid4()}"
    active = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE %s AND state = 'active' AND pid <> pg_backend_pid()"
    )
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(_sleeps, patience, name)
        wait_until(lambda: sql(active, f"%{name}%")[0][0] == 1)
        started = time.monotonic()
        wait_until(lambda: (patience.cut_the_overdue(), sql(active, f"%{name}%")[0][0] == 0)[1])
        assert time.monotonic() - started < 30, "or it would have come to its end by itself"
        assert done.result() is True


def _sleeps(patience: StatementDeadline, name: str) -> bool:
    try:
        with own_connection("default", "engine") as mine, patience.wait_for(mine), mine.cursor() as cursor:
            cursor.execute(f"SELECT pg_sleep(120) -- {name}")
    except OperationalError:
        return True
    return False
