"""G06: two that enqueue one key at once. Never "enqueued" with no row, never a broken transaction, never a deadlock."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from django_reliable_jobs import AlreadyEnqueued, control
from django_reliable_jobs.models import Job
from django_reliable_jobs.store import insert
from django_reliable_jobs.store.exchange import ClaimRequest, Settlement, Source, exchange
from django_reliable_jobs.values import outcome
from tests.support.factories import EchoFactory, ago, lease_of
from tests.support.probes.jobs import echo, noop
from tests.support.probes.models import Mark
from tests.support.sessions import PATIENCE, Session, impatient, together

KEYS: dict[str, dict[str, Any]] = {
    "unique key": {"unique_key": "k"},
    "idempotency key": {"idempotency_key": "k"},
    "both": {"unique_key": "k", "idempotency_key": "k"},
}


def make(options: dict[str, Any], bulk: bool = False) -> tuple[int, bool | None]:
    """The id of the job, and whether it is new (a bulk enqueue does not say)."""
    if bulk:
        return echo.using(**options).enqueue_many([("mine",)])[0], None
    job = echo.using(**options).enqueue("mine")
    return job.pk, job.created


def in_a_block(options: dict[str, Any], bulk: bool = False) -> tuple[int, bool | None]:
    """The same inside the caller's own transaction, which goes on with other work."""
    with transaction.atomic():
        Mark.objects.create(label="before")
        made = make(options, bulk)
        Mark.objects.create(label="after")
    return made


@pytest.mark.parametrize("options", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("call", [make, in_a_block])
@pytest.mark.parametrize("bulk", [False, True])
def test_a_rival_that_is_rolled_back_does_not_take_the_job_with_it(
    sessions: Callable[[], Session], options: dict[str, Any], call: Any, bulk: bool
) -> None:
    first, second = sessions(), sessions()
    first.begin()
    theirs = first.do(echo.using(**options).enqueue, "theirs")
    answer = second.start(call, options, bulk)
    second.waits_for(answer)
    first.rollback()
    job_id, created = answer.result(60)
    assert created in (True, None)
    assert job_id != theirs.pk
    assert Job.objects.get().args == ["mine"]
    assert Mark.objects.count() == (2 if call is in_a_block else 0)


@pytest.mark.parametrize("options", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("call", [make, in_a_block])
@pytest.mark.parametrize("bulk", [False, True])
def test_a_rival_that_commits_keeps_its_job(
    sessions: Callable[[], Session], options: dict[str, Any], call: Any, bulk: bool
) -> None:
    first, second = sessions(), sessions()
    first.begin()
    theirs = first.do(echo.using(**options).enqueue, "theirs")
    answer = second.start(call, options, bulk)
    second.waits_for(answer)
    first.commit()
    job_id, created = answer.result(60)
    assert (job_id, bool(created)) == (theirs.pk, False)
    assert Job.objects.get().args == ["theirs"]
    assert Mark.objects.count() == (2 if call is in_a_block else 0)


@pytest.mark.parametrize("options", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("call", [make, in_a_block])
def test_twenty_at_once_make_one_job(options: dict[str, Any], call: Any) -> None:
    start = threading.Barrier(20, timeout=PATIENCE)

    def one(bulk: bool) -> tuple[int, bool | None]:
        impatient(60_000)
        start.wait()
        return call(options, bulk)

    made = together(*(partial(one, number % 4 == 0) for number in range(20)))
    job = Job.objects.get()
    assert {job_id for job_id, _ in made} == {job.pk}
    assert [created for _, created in made].count(True) <= 1
    assert Mark.objects.count() == (40 if call is in_a_block else 0)


def test_raise_waits_for_the_rival_too(sessions: Callable[[], Session]) -> None:
    first, second = sessions(), sessions()
    strict = echo.using(unique_key="k", if_exists="raise")
    first.begin()
    first.do(strict.enqueue, "theirs")
    answer = second.start(strict.enqueue, "mine")
    second.waits_for(answer)
    first.commit()
    with pytest.raises(AlreadyEnqueued):
        answer.result(60)
    first.begin()
    first.do(echo.using(unique_key="other").enqueue, "theirs")
    answer = second.start(echo.using(unique_key="other", if_exists="raise").enqueue, "mine")
    second.waits_for(answer)
    first.rollback()
    assert answer.result(60).created


def test_a_holder_that_finishes_in_between_frees_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The INSERT met it, the look-up did not find it any more: the loop inserts again."""
    holder = EchoFactory(unique_key="k")
    look_up = insert.holder_of

    def late(*asked: Any) -> Any:
        Job.objects.filter(pk=holder.pk).update(status="DONE")
        return look_up(*asked)

    monkeypatch.setattr(insert, "holder_of", late)
    made = echo.using(unique_key="k").enqueue("mine")
    assert (made.created, made.pk != holder.pk) == (True, True)


@pytest.mark.parametrize("if_exists", ["keep", "replace"])
def test_enqueue_never_waits_for_or_locks_a_running_job(sessions: Callable[[], Session], if_exists: Any) -> None:
    """Not while a heartbeat or a handler holds its row, and it holds up no settle by itself (an upsert would)."""
    job = EchoFactory(running=True, unique_key="k", args=["old"])
    caller, worker, handler = sessions(), sessions(), sessions()
    handler.begin()
    handler.sql("SELECT 1 FROM django_reliable_jobs_job WHERE id = %s FOR UPDATE", [job.pk])
    caller.begin()
    got = caller.do(echo.using(unique_key="k", if_exists=if_exists).enqueue, "new")
    assert (got.pk, got.created, got.args) == (job.pk, False, ["old"])
    handler.rollback()
    # The caller's transaction is still open; the row is free.
    assert worker.do(
        exchange, "default", job.locked_by, 30, [Settlement(lease_of(job), outcome.DONE)], ClaimRequest()
    ).settled
    caller.commit()
    assert Job.objects.get().status == "DONE"


def test_replace_meets_the_status_of_the_moment(sessions: Callable[[], Session]) -> None:
    """While it waits for the row a claim commits: the job runs with the arguments that its worker has read."""
    job = EchoFactory(unique_key="k", args=["old"])
    worker, caller = sessions(), sessions()
    worker.begin()
    [lease] = worker.do(exchange, "default", EchoFactory.build(running=True).locked_by, 30, [], _wish()).leases
    answer = caller.start(echo.using(unique_key="k", if_exists="replace").enqueue, "new")
    caller.waits_for(answer)
    worker.commit()
    got = answer.result(60)
    assert (got.pk, got.status, got.args, got.created) == (job.pk, "RUNNING", ["old"], False)
    assert lease.args == '["old"]'


def _wish() -> ClaimRequest:
    return ClaimRequest(1, pairs=[Source("default", 0)])


def test_a_claim_frees_a_key_that_counts_until_the_start(sessions: Callable[[], Session]) -> None:
    """An enqueue that meets the claim waits for it, and then makes the follow-up."""
    job = EchoFactory(unique_key="k", unique_until_start=True)
    worker, caller = sessions(), sessions()
    worker.begin()
    assert worker.do(exchange, "default", EchoFactory.build(running=True).locked_by, 30, [], _wish()).leases
    answer = caller.start(make, {"unique_key": "k", "unique_until": "start"})
    caller.waits_for(answer)
    worker.commit()
    job_id, created = answer.result(60)
    assert (job_id != job.pk, created) == (True, True)


def test_an_expired_holder_is_waited_for(sessions: Callable[[], Session]) -> None:
    """Somebody is just changing it: whether it is still late is asked of the row as it is then."""
    late = EchoFactory(unique_key="k", expires_at=ago(1))
    admin, caller = sessions(), sessions()
    admin.begin()
    admin.sql("UPDATE django_reliable_jobs_job SET expires_at = NULL WHERE id = %s", [late.pk])
    answer = caller.start(make, {"unique_key": "k"})
    caller.waits_for(answer)
    admin.commit()
    assert answer.result(60) == (late.pk, False)


@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
@pytest.mark.parametrize("chunk", [7, 5000])
def test_bulk_enqueues_of_the_same_keys_in_any_order_do_not_deadlock(
    kind: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert, "CHUNK", chunk)
    start = threading.Barrier(4, timeout=PATIENCE)
    options: dict[str, Any] = {kind: lambda number: f"k{number}"}

    def bulk(seed: int) -> list[int]:
        impatient(60_000)
        numbers = list(range(60))
        random.Random(seed).shuffle(numbers)
        start.wait()
        for round_ in range(6):
            keys = [round_ * 100 + number for number in numbers]
            with transaction.atomic():
                ids = noop.using(**options).enqueue_many([(key,) for key in keys])
            assert len(set(ids)) == len(keys)
        return ids

    assert len({frozenset(ids) for ids in together(*(partial(bulk, seed) for seed in range(4)))}) == 1
    assert Job.objects.count() == 360


def test_one_dead_job_is_retried_once_by_many(sessions: Callable[[], Session]) -> None:
    job = EchoFactory(dead=True)
    start = threading.Barrier(8, timeout=PATIENCE)

    def press() -> bool:
        start.wait()
        return bool(control.retry(job.pk))

    assert sorted(together(*[press] * 8)) == [False] * 7 + [True]


@pytest.mark.parametrize("_", range(5))
def test_a_retry_and_an_enqueue_of_one_key_make_one_unfinished_job(_: int) -> None:
    dead = EchoFactory(dead=True, unique_key="k")
    start = threading.Barrier(2, timeout=PATIENCE)

    def at_once(function: Callable[[], Any]) -> Any:
        start.wait()
        return function()

    retry, enqueue = partial(control.retry, dead.pk), partial(echo.using(unique_key="k").enqueue, "new")
    report, made = together(partial(at_once, retry), partial(at_once, enqueue))
    unfinished = Job.objects.get(status="QUEUED")
    if report:
        assert (unfinished.pk, made.pk, made.created) == (dead.pk, dead.pk, False)
    else:
        assert report.skipped == {dead.pk: f"job {made.pk} holds its unique key"}
        assert unfinished.pk == made.pk


def test_a_retry_whose_holder_finishes_in_between_goes_through(
    sessions: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, holder = EchoFactory(dead=True, unique_key="k"), EchoFactory(unique_key="k")
    atomic = transaction.atomic
    tries: list[int] = []

    class Late(transaction.Atomic):
        def __exit__(self, *error: Any) -> None:
            super().__exit__(*error)
            tries.append(1)
            Job.objects.filter(pk=holder.pk).update(status="DONE")

    monkeypatch.setattr("django_reliable_jobs.store.control.transaction.atomic", lambda using: Late(using, True, False))
    report = control.retry(dead.pk)
    monkeypatch.setattr(transaction, "atomic", atomic)
    assert (report.changed, len(tries)) == ([dead.pk], 2)


def test_an_unfinished_retry_waits_for_an_uncommitted_enqueue(sessions: Callable[[], Session]) -> None:
    dead = EchoFactory(dead=True, unique_key="k")
    caller, admin = sessions(), sessions()
    caller.begin()
    caller.do(echo.using(unique_key="k").enqueue, "new")
    answer = admin.start(control.retry, dead.pk)
    admin.waits_for(answer)
    caller.rollback()
    assert answer.result(60).changed == [dead.pk]
