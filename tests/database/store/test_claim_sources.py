"""No source of jobs hides another for long, and a claim's payload is bounded."""

from __future__ import annotations

import random
from uuid import uuid4

import pytest

from django_reliable_jobs.models import Job
from django_reliable_jobs.store import queues_with_work as looking
from django_reliable_jobs.store.exchange import ClaimRequest, Exchanged, Source, exchange
from django_reliable_jobs.store.queues_with_work import Look, discover, look
from django_reliable_jobs.worker.leases import claim_plan as where
from django_reliable_jobs.worker.leases.claim_plan import PLACES, ClaimPlan
from django_reliable_jobs.worker.options import QueueSelection
from tests.database.conftest import Exchange
from tests.support.factories import JobFactory, QueueStateFactory, ago
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db


def claim(claiming: ClaimPlan, free: int, ahead: int = 0) -> tuple[ClaimRequest, Exchanged]:
    """One round of an engine that has something to settle."""
    wish = claiming.wish(free, ahead, {})
    assert wish is not None
    got = exchange("default", uuid4(), 30, [], wish)
    claiming.claimed(wish, got)
    return wish, got


def looked(claiming: ClaimPlan) -> ClaimPlan:
    claiming.looked(look("default", claiming.look_from), 0.001)
    while not claiming.looked_everywhere:
        claiming.looked(look("default", claiming.look_from), 0.001)
    return claiming


@pytest.mark.django_db(transaction=True)
def test_locked_rows_of_a_high_priority_hide_neither_lower_ones_nor_other_queues(exchange: Exchange) -> None:
    """P18: a bulk cancel in an open transaction."""
    JobFactory.create_batch(60, priority=9)
    low, other = JobFactory(priority=0), JobFactory(queue="other", priority=-5)
    pairs = [Source("default", 9), Source("default", 0), Source("other", -5)]
    with Session() as somebody:
        somebody.begin()
        somebody.sql("SELECT 1 FROM django_reliable_jobs_job WHERE priority = 9 FOR UPDATE")
        assert exchange.claim(2, 4, pairs=pairs, window=22) == [low.pk, other.pk]


@pytest.mark.django_db(transaction=True)
def test_a_source_that_is_held_by_others_is_left_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """P18: what lies behind the locked rows comes too, once a claim has looked far enough; what is all locked costs nothing."""
    monkeypatch.setattr(where, "MAX_WINDOW", 64)
    monkeypatch.setattr(where, "MOMENT", 3600.0)
    JobFactory.create_batch(200, priority=9)
    JobFactory.create_batch(12, priority=0)
    claiming = looked(ClaimPlan(QueueSelection(), 5.0))
    with Session() as somebody:
        somebody.begin()
        somebody.sql("SELECT 1 FROM django_reliable_jobs_job WHERE priority = 9 FOR UPDATE")
        claimed = [claim(claiming, 2) for _ in range(6)]
        assert [len(got.leases) for _, got in claimed] == [2] * 6, "slots are filled meanwhile"
        for _ in range(8):
            if (wish := claiming.wish(2, 0, {})) is None:
                break
            claiming.claimed(wish, exchange("default", uuid4(), 30, [], wish))
        assert claiming.wish(2, 0, {}) is None or [pair.priority for pair in wish.pairs] == [0]  # type: ignore[union-attr]
        assert not claiming.more, "or the engine would spin"
    claiming._left_until = dict.fromkeys(claiming._left_until, 0.0)
    assert len(claim(claiming, 2)[1].leases) == 2


def test_the_payload_of_a_claim_is_bounded(exchange: Exchange) -> None:
    """P27: as long as the database says without reading the arguments; a free slot gets one job whatever its size."""
    digits = "".join(random.choices("0123456789abcdef", k=200_000))
    jobs = [JobFactory(args=[f"{number}{digits}"], run_at=ago(90 - number)) for number in range(12)]
    small = JobFactory(run_at=ago(1))

    def taken(free: int, ahead: int, most: int) -> list[int]:
        got = exchange(wish=ClaimRequest(free, ahead, [Source("default", 0)], payload_bytes=most))
        assert got.too_large == (len(got.leases) < min(free + ahead, 13))
        ids = [lease.job_id for lease in got.leases]
        Job.objects.filter(pk__in=ids).update(status="QUEUED")
        return ids

    assert taken(0, 20, 100_000) == []
    assert taken(1, 20, 0) == [jobs[0].pk]
    assert taken(3, 0, 0) == [jobs[0].pk]
    some = taken(1, 20, 1_000_000)
    assert some == [job.pk for job in jobs[: len(some)]]
    assert 2 <= len(some) <= 6
    assert taken(2, 20, 100_000_000) == [*(job.pk for job in jobs), small.pk]


def test_arguments_that_compress_well_are_bounded_too(exchange: Exchange) -> None:
    """P27: a megabyte of one letter takes some ten kilobytes in the table."""
    for _ in range(30):
        JobFactory(args=["a" * 1_000_000])
    got = exchange(wish=ClaimRequest(1, 100, [Source("default", 0)], payload_bytes=1_000_000))
    assert sum(len(lease.args) for lease in got.leases) <= 10_500_000
    assert got.too_large


def test_a_look_in_parts_finds_the_same() -> None:
    for queue in ("a", "b", "c", "paused"):
        for priority in (5, 0, -100, 100):
            JobFactory(queue=queue, priority=priority)
    QueueStateFactory(queue="paused")
    whole = [(work.queue, work.priority) for work in discover("default")]
    assert len(whole) == len(set(whole)) == 12
    for most in (1, 2, 5, 12, 15, 16, 17):
        parts, end = look("default", most=most)
        number = 1
        while end is not None:
            more, end = look("default", end, most)
            parts += more
            number += 1
        assert [(work.queue, work.priority) for work in parts] == whole
        assert number == 16 // most + 1


def test_of_many_queues_a_claim_asks_in_a_few_by_turns() -> None:
    """N21"""
    queues = [f"q{number:03}" for number in range(150)]
    for queue in queues:
        JobFactory.create_batch(4, queue=queue)
    urgent = JobFactory(queue="q149", priority=7)
    claiming = looked(ClaimPlan(QueueSelection(), 5.0))
    assert len(claiming.sinces) == 151
    served: list[str] = []
    wish, got = claim(claiming, 8)
    assert got.leases[0].job_id == urgent.pk
    while got.leases:
        assert len(wish.pairs) <= PLACES
        served += [lease.queue for lease in got.leases]
        if len(served) == 300:
            assert len(set(served)) >= 100, "nobody waits until another is empty"
        wish_or_none = claiming.wish(8, 0, {})
        if wish_or_none is None:
            break
        wish = wish_or_none
        got = exchange("default", uuid4(), 30, [], wish)
        claiming.claimed(wish, got)
    assert len(served) == 601
    assert not Job.objects.filter(status="QUEUED").exists()


def many(count: int = 100) -> ClaimPlan:
    made = ClaimPlan(QueueSelection(), 5.0)
    at = ago(100)
    made.looked(Look([looking.Work(f"q{number}", 0, -1.0, at) for number in range(count)]), 0.001)
    return made


def test_of_many_queues_those_found_empty_are_left_until_the_next_look_or_news() -> None:
    """N21"""
    claiming = many()
    asked: set[str] = set()
    for _ in range(100):
        wish = claiming.wish(4, 0, {})
        assert wish is not None
        asked |= {pair.queue for pair in wish.pairs}
        claiming.claimed(wish, Exchanged(seen=[0] * len(wish.pairs)))
        if not claiming.more:
            break
    assert len(asked) == 100
    assert len(claiming.sinces) <= PLACES
    claiming.told("q5", 0)
    assert claiming.more
    assert ("q5", 0) in claiming.sinces


@pytest.mark.parametrize("locked", [True, False])
def test_many_queues_with_a_row_that_is_locked_do_not_make_the_engine_spin(locked: bool) -> None:
    claiming = many()
    for rounds in range(200):
        wish = claiming.wish(4, 0, {})
        if wish is None or (rounds and not claiming.more):
            break
        claiming.claimed(wish, Exchanged(seen=[1 if locked else 0] * len(wish.pairs)))
    assert not claiming.more
    assert rounds < 60


def test_what_a_whole_look_does_not_find_any_more_is_forgotten_and_half_a_look_forgets_nothing() -> None:
    claiming = many(3)
    at = ago(100)
    claiming.looked(Look([looking.Work("q0", 0, -1.0, at)], ("q0", 0)), 0.001)
    assert set(claiming.sinces) == {("q0", 0), ("q1", 0), ("q2", 0)}
    assert not claiming.looked_everywhere
    claiming.told("q2", 0)
    claiming.looked(Look([looking.Work("r", 0, -1.0, at)]), 0.001)
    assert set(claiming.sinces) == {("q0", 0), ("q2", 0), ("r", 0)}
    assert claiming.looked_everywhere
