"""FR-P12: enqueue is part of the caller's transaction, whatever becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from django_reliable_jobs.models import Job
from django_reliable_jobs.store.exchange import ClaimRequest, Source, exchange
from tests.support.factories import JobFactory
from tests.support.probes.jobs import noop
from tests.support.probes.models import Mark
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def worker() -> Iterator[Session]:
    with Session() as session:
        yield session


def claimable(worker: Session) -> list[int]:
    """What a worker would claim at this moment; it is put back."""
    worker.begin()
    got = worker.do(exchange, "default", uuid4(), 30, [], ClaimRequest(99, pairs=[Source("default", 0)]))
    worker.rollback()
    return [lease.job_id for lease in got.leases]


def test_a_job_is_invisible_until_the_commit(worker: Session) -> None:
    with transaction.atomic():
        order = Mark.objects.create(label="order")
        job = noop.enqueue(order.pk)
        jobs = [job.pk, *noop.enqueue_many([(1,), (2,)])]
        assert Job.objects.count() == 3, "for its own transaction it is there"
        assert worker.sql("SELECT count(*) FROM django_reliable_jobs_job") == [(0,)]
        assert claimable(worker) == []
    assert claimable(worker) == jobs


def test_a_rollback_leaves_no_job(worker: Session) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        noop.enqueue(1) and noop.enqueue_many([(2,)]) and 1 / 0
    assert claimable(worker) == []
    assert not Job.objects.exists()


def test_the_rollback_of_a_savepoint_takes_only_its_own(worker: Session) -> None:
    with transaction.atomic():
        before = noop.enqueue()
        with transaction.atomic():
            noop.enqueue()
            transaction.set_rollback(True)
        with transaction.atomic():
            after = noop.enqueue()
    assert claimable(worker) == [before.pk, after.pk]


def test_no_transaction_is_needed(worker: Session) -> None:
    job = noop.enqueue()
    assert not connection.in_atomic_block
    assert claimable(worker) == [job.pk]


def test_manual_transactions_are_joined_too(worker: Session) -> None:
    transaction.set_autocommit(False)
    try:
        noop.enqueue()
        assert claimable(worker) == []
        transaction.rollback()
        job = noop.enqueue()
        transaction.commit()
        assert claimable(worker) == [job.pk]
    finally:
        transaction.set_autocommit(True)


def test_a_lost_race_for_a_key_leaves_the_transaction_usable() -> None:
    JobFactory(unique_key="k"), JobFactory(done=True, idempotency_key="i")
    with transaction.atomic():
        assert noop.using(unique_key="k").enqueue().created is False
        assert noop.using(idempotency_key="i").enqueue().created is False
        assert noop.using(unique_key="k", if_exists="replace").enqueue(1).created is False
        assert noop.using(unique_key=lambda number: f"k{number or ''}").enqueue_many([(0,), (1,)])
        Mark.objects.create(label="usable")
    assert Mark.objects.count() == 1


def test_a_job_enqueued_before_an_error_goes_with_the_order() -> None:
    Mark.objects.create(id=1, label="there")

    def order() -> None:
        with transaction.atomic():
            noop.enqueue()
            Mark.objects.create(id=1, label="again")

    with pytest.raises(IntegrityError):
        order()
    assert not Job.objects.exists()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_the_callers_isolation_level_may_be_stricter(level: str) -> None:
    """Only workers and atomic jobs need READ COMMITTED."""
    JobFactory(unique_key="k")
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        assert noop.enqueue().created is True
        assert noop.using(unique_key="k").enqueue().created is False
        assert noop.using(unique_key="k", if_exists="replace").enqueue(7).args == [7]


async def _in_a_coroutine() -> tuple[Job, list[int]]:
    return await noop.aenqueue(5), await noop.using(priority=3).aenqueue_many([(6,)])


def test_the_async_twins_do_the_same() -> None:
    import asyncio

    job, ids = asyncio.run(_in_a_coroutine())
    assert Job.objects.get(pk=job.pk).args == [5]
    assert Job.objects.get(pk=ids[0]).priority == 3
