"""The sequence of fencing tokens behind the tables, as after a data-only restore (P13, U07)."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.core.checks import run_checks
from django.db import DatabaseError, connection, connections, transaction

from django_reliable_jobs.models import Job, JobAttempt, JobStatus, TokenMark
from django_reliable_jobs.store import tokens
from django_reliable_jobs.store.exchange import ClaimRequest, RowState, Settlement, Source, exchange, reread
from django_reliable_jobs.store.heartbeat import Held, heartbeat
from django_reliable_jobs.store.settle_atomic import settle
from django_reliable_jobs.store.tokens import MARGIN, behind, fencing_tokens, raise_mark, raise_sequence
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.outcome import ErrorRecord
from tests.support.factories import JobAttemptFactory, JobFactory, ago, lease_of

pytestmark = pytest.mark.django_db(transaction=True)
FAILED = outcome.failed(0.0, ErrorRecord("E", "no", ""), last_attempt=False)


@pytest.fixture(autouse=True)
def _further(transactional_db: None) -> Iterator[None]:
    """Other tests' tokens are left behind, and this one's too."""
    set_back(fencing_tokens("default")[0] + 100_000)
    [before] = fencing_tokens("default")
    yield
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('django_reliable_jobs_fencing_token', %s)", [before + 50_000])


def set_back(to: int = 1) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('django_reliable_jobs_fencing_token', %s)", [to])


def claim(worker: object = None) -> list[int]:
    wish = ClaimRequest(free=10, pairs=[Source("default", 0)])
    return [lease.token for lease in exchange("default", worker or uuid4(), 30, [], wish).leases]  # type: ignore[arg-type]


def test_in_step_nothing_is_done() -> None:
    JobFactory()
    claim()
    raise_mark("default")
    [before] = fencing_tokens("default")
    assert behind("default") is None
    assert raise_sequence("default") is None
    assert fencing_tokens("default") == [before + 1]


def test_the_mark_rises_and_never_falls() -> None:
    TokenMark.objects.all().delete()
    for _ in range(3):
        [last] = fencing_tokens("default")
        raise_mark("default")
        assert TokenMark.objects.get().token == last
    set_back()
    raise_mark("default")
    assert TokenMark.objects.get().token == last


@pytest.mark.parametrize("what", ["the mark", "an attempt", "a running job", "a done job"])
def test_it_is_found_and_raised_by(what: str) -> None:
    [last] = fencing_tokens("default")
    if what == "the mark":
        raise_mark("default")
    elif what == "an attempt":
        JobAttemptFactory(fencing_token=last)
    elif what == "a running job":
        JobFactory(running=True, fencing_token=last)
    else:
        JobFactory(done=True, fencing_token=last)
    set_back()
    found = behind("default")
    assert found is not None
    assert (found.last, found.known) == (1, last)
    assert raise_sequence("default") == found
    assert fencing_tokens("default")[0] > last + MARGIN - 10
    assert behind("default") is None


def test_two_who_find_it_raise_it_once() -> None:
    raise_mark("default")
    set_back()
    results: list[object] = []
    start = threading.Barrier(4)

    def look() -> None:
        start.wait(60)
        results.append(raise_sequence("default"))
        connections.close_all()

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([found for found in results if found is not None]) == 1
    assert fencing_tokens("default")[0] < 2 * MARGIN + 10**8


def test_the_check_names_the_statement() -> None:
    raise_mark("default")
    assert not [each for each in run_checks(databases=["default"]) if each.id == "reliable_jobs.W006"]
    set_back()
    [found] = [each for each in run_checks(databases=["default"]) if each.id == "reliable_jobs.W006"]
    statement = re.search(r"SELECT setval\('[a-z_]+', \d+\);", str(found.hint))
    assert statement is not None
    with connection.cursor() as cursor:
        cursor.execute(statement[0])
    assert behind("default") is None


def test_a_role_that_may_not_raise_it_gets_the_statement() -> None:
    raise_mark("default")
    set_back()
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE reliable_jobs_weak")
        cursor.execute("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO reliable_jobs_weak")
        cursor.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO reliable_jobs_weak")
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL ROLE reliable_jobs_weak")
            assert tokens.behind("default") is not None, "to look it needs no more than the worker does"
            with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
                raise_sequence("default")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP OWNED BY reliable_jobs_weak")
            cursor.execute("DROP ROLE reliable_jobs_weak")


def test_a_token_that_a_job_had_before_does_not_stop_the_exchange() -> None:
    """Its retry gets its own old token: the record of the attempt is there already."""
    worker = uuid4()
    job, other = JobFactory(), JobFactory(priority=-1)
    [token] = claim(worker)
    lease = lease_of(Job.objects.get(pk=job.pk))
    assert exchange("default", worker, 30, [Settlement(lease, FAILED)], ClaimRequest()).settled == {lease.key}
    set_back(token - 1)
    Job.objects.filter(pk=job.pk).update(run_at=ago(5))
    assert claim(worker) == [token]
    pairs = [Source("default", -1)]
    got = exchange("default", worker, 30, [Settlement(lease, FAILED)], ClaimRequest(free=1, pairs=pairs))
    assert got.settled == {lease.key}
    assert [one.job_id for one in got.leases] == [other.pk]
    assert JobAttempt.objects.filter(job=job).count() == 1
    Job.objects.filter(pk=job.pk).update(status=JobStatus.RUNNING, locked_by=worker, locked_until=ago(-30))
    with transaction.atomic():
        assert settle("default", worker, Settlement(lease, FAILED))


def test_the_same_token_of_another_worker_is_not_ours() -> None:
    """A stalled owner and the present one bear the same pair of id and token."""
    old, new = uuid4(), uuid4()
    job = JobFactory()
    [token] = claim(old)
    lease = lease_of(Job.objects.get(pk=job.pk))
    Job.objects.filter(pk=job.pk).update(status=JobStatus.QUEUED, locked_by=None, run_at=ago(5))
    set_back(token - 1)
    assert claim(new) == [token]
    before = Job.objects.values().get()
    assert (
        exchange(
            "default",
            old,
            30,
            [
                Settlement(lease, outcome.DONE),
            ],
            ClaimRequest(),
        ).settled
        == set()
    )
    assert heartbeat("default", 30, [Held(lease.key)], old) == {}
    assert reread("default", [lease.key], old) == {lease.key: RowState.LOST}
    with transaction.atomic():
        assert not settle("default", old, Settlement(lease, outcome.DONE))
    assert Job.objects.values().get() == before
    assert reread("default", [lease.key], new) == {lease.key: RowState.BUSY}
    assert heartbeat("default", 30, [Held(lease.key)], new) == {lease.key: False}
    assert exchange("default", new, 30, [Settlement(lease, outcome.DONE)], ClaimRequest()).settled == {lease.key}
