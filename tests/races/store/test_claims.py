"""Two claimers never hold one row, and a row that somebody holds stops nobody."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from uuid import uuid4

import pytest

from django_reliable_jobs.models import Job
from django_reliable_jobs.store.exchange import ClaimRequest, Exchanged, RowState, Settlement, Source, exchange, reread
from django_reliable_jobs.store.heartbeat import Held, heartbeat
from django_reliable_jobs.store.reap import reap
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.backoff import Backoff
from django_reliable_jobs.values.lease import Lease, LeaseKey
from tests.database.conftest import IMPLEMENTATIONS
from tests.support.factories import JobFactory, ago
from tests.support.sessions import PATIENCE, Session, pausing, together

THREADS = 8
PAIRS = [Source("default", 0), Source("mail", 3, cap=2), Source("mail", 0, cap=2)]


def claim_all(function: Callable[..., Exchanged], start: threading.Barrier, free: int, ahead: int) -> list[Lease]:
    """Claim until nothing is left for a while; what a round brought is settled by the next ones.

    Not always by the next one: a rival that saw the row before our claim may hold it for a moment, to see that it is gone.
    """
    worker = uuid4()
    held: list[Lease] = []
    mine: dict[LeaseKey, Lease] = {}
    idle = 0
    start.wait()
    until = time.monotonic() + PATIENCE
    while idle < 5 or mine:
        assert time.monotonic() < until, f"never settled: {list(mine)}"
        offers = [Settlement(lease, outcome.DONE) for lease in mine.values()]
        got = function("default", worker, 30.0, offers, ClaimRequest(free, ahead, PAIRS, free + ahead + 8))
        for key in got.settled:
            del mine[key]
        mine |= {lease.key: lease for lease in got.leases}
        held += got.leases
        idle = 0 if got.leases else idle + 1
    return held


@pytest.mark.parametrize("function", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
def test_every_job_is_claimed_once(function: Callable[..., Exchanged]) -> None:
    JobFactory.create_batch(120)
    for priority in (0, 3):
        JobFactory.create_batch(20, queue="mail", priority=priority)
    start = threading.Barrier(THREADS, timeout=PATIENCE)
    claims = together(*(partial(claim_all, function, start, 1 + number % 3, number % 4) for number in range(THREADS)))
    leases = [lease for held in claims for lease in held]
    assert Counter(lease.job_id for lease in leases) == Counter(Job.objects.values_list("id", flat=True))
    assert len({lease.token for lease in leases}) == 160
    assert set(Job.objects.values_list("status", "attempts")) == {("DONE", 1)}
    assert sum(1 for held in claims if held) > 1, "more than one of them got something"


def test_both_implementations_can_claim_side_by_side() -> None:
    JobFactory.create_batch(80)
    start = threading.Barrier(4, timeout=PATIENCE)
    functions = [*IMPLEMENTATIONS.values()] * 2
    claims = together(*(partial(claim_all, function, start, 2, 2) for function in functions))
    assert Counter(lease.job_id for held in claims for lease in held) == Counter(
        Job.objects.values_list("id", flat=True)
    )


@pytest.mark.parametrize("change", ["status = 'CANCELLED'", "run_at = now() + interval '1h'"])
def test_what_changed_since_the_look_is_not_claimed(sessions: Callable[[], Session], change: str) -> None:
    """The claim has seen the job due; before it locks the row, somebody else changes it."""
    job, other = JobFactory(run_at=ago(90)), JobFactory(run_at=ago(80))
    worker, somebody = sessions(), sessions()
    with pausing("exchange", r"AND job\.status(?= \|\| '' IN \('QUEUED', 'FAILED'\) AND job\.run_at <= )") as go_on:
        answer = worker.start(exchange, "default", uuid4(), 30, [], ClaimRequest(2, pairs=[Source("default", 0)]))
        worker.waits_for(answer)
        somebody.sql(f"UPDATE django_reliable_jobs_job SET {change} WHERE id = %s", [job.pk])
        go_on()
        assert [lease.job_id for lease in answer.result(60).leases] == [other.pk]


def test_of_two_claims_that_saw_one_job_one_gets_it(sessions: Callable[[], Session]) -> None:
    job = JobFactory()
    slow, fast = sessions(), sessions()
    wish = ClaimRequest(1, pairs=[Source("default", 0)])
    with pausing("exchange", r"AND job\.status(?= \|\| '' IN \('QUEUED', 'FAILED'\) AND job\.run_at <= )") as go_on:
        answer = slow.start(exchange, "default", uuid4(), 30, [], wish)
        slow.waits_for(answer)
        got = fast.do(IMPLEMENTATIONS["portable"], "default", uuid4(), 30, [], wish)
        go_on()
        assert answer.result(60).leases == []
    assert [lease.job_id for lease in got.leases] == [job.pk]
    assert Job.objects.get().fencing_token == got.leases[0].token


def test_a_stalled_worker_changes_nothing_after_its_job_was_claimed_again() -> None:
    """By the same worker: `locked_by` alone would let the stale outcome through. The token does not."""
    job, worker = JobFactory(), uuid4()
    wish = ClaimRequest(1, pairs=[Source("default", 0)])
    [stale] = exchange("default", worker, 30, [], wish).leases
    Job.objects.update(locked_until=ago(1))
    assert [got.id for got in reap("default", Backoff(), 10)] == [job.pk]
    assert reread("default", [stale.key]) == {stale.key: RowState.LOST}, "lost before anybody else has it"
    [current] = exchange("default", worker, 30, [], wish).leases
    before = Job.objects.values().get()

    for late in (outcome.DONE, outcome.RELEASED, outcome.dead("late"), outcome.snoozed(5)):
        assert exchange("default", worker, 30, [Settlement(stale, late)], ClaimRequest()).settled == set()
    assert heartbeat("default", 30, [Held(stale.key, '{"done": 9}')]) == {}
    assert Job.objects.values().get() == before
    assert reread("default", [stale.key, current.key]) == {stale.key: RowState.LOST, current.key: RowState.BUSY}
    assert exchange("default", worker, 30, [Settlement(current, outcome.DONE)], ClaimRequest()).settled == {current.key}
