"""Which jobs an exchange claims, and what a claim writes, in both implementations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from django_reliable_jobs.models import Job
from django_reliable_jobs.store import exchange as one_statement
from django_reliable_jobs.store.exchange import BEGINNING, ClaimRequest, Source
from django_reliable_jobs.worker.leases.claim_plan import ClaimPlan
from django_reliable_jobs.worker.options import QueueSelection
from tests.database.conftest import Exchange
from tests.support.factories import JobFactory, QueueStateFactory, ago, next_token
from tests.support.sessions import Session, fetch

pytestmark = pytest.mark.django_db


def made(*jobs: Job) -> list[int]:
    return [job.pk for job in jobs]


def test_a_claim_writes_the_lease_and_returns_it(exchange: Exchange) -> None:
    job = JobFactory(
        args=[1, "é"], kwargs={"a": None}, reason="lost", attempts=2, losses=1, timeout=7.5, idempotency_key="i",
        unique_key="u", scheduled_for=ago(600), progress={"done": 1}, unknown_since=ago(100), finished_at=ago(100),
    )  # fmt: skip
    last = next_token()
    before = timezone.now()
    [lease] = exchange(wish=ClaimRequest(1, pairs=[Source("default", 0)]), lease=30).leases
    now = Job.objects.get()
    assert (now.status, now.reason, now.attempts, now.locked_by) == ("RUNNING", "", 3, exchange.worker)
    assert now.locked_until is not None
    assert timedelta(seconds=30) <= now.locked_until - before <= timedelta(seconds=30) + (timezone.now() - before)
    assert now.started_at is not None
    assert now.started_at >= before
    assert (now.finished_at, now.progress, now.unique_key) == (None, None, "u")
    assert now.fencing_token == lease.token > last
    assert (lease.job_id, lease.name, lease.queue, lease.priority) == (job.pk, "probes.noop", "default", 0)
    assert (lease.args, lease.kwargs) == ('[1, "é"]', '{"a": null}') or lease.args == '[1, "\\u00e9"]'
    assert (lease.attempt, lease.max_attempts, lease.losses, lease.timeout) == (3, 5, 1, 7.5)
    assert (lease.idempotency_key, lease.scheduled_for, lease.run_at) == ("i", job.scheduled_for, job.run_at)


def test_a_later_claim_of_anything_has_a_greater_token(exchange: Exchange) -> None:
    seen = 0
    for _ in range(5):
        JobFactory.create_batch(3)
        tokens = [lease.token for lease in exchange(wish=ClaimRequest(3, pairs=[Source("default", 0)])).leases]
        assert len(set(tokens)) == 3
        assert min(tokens) > seen
        seen = max(tokens)


def test_the_order_is_priority_then_time_then_id(exchange: Exchange) -> None:
    same = ago(100)
    late, first, second = JobFactory(run_at=ago(10)), JobFactory(run_at=same), JobFactory(run_at=same)
    low, high, early = JobFactory(priority=-5), JobFactory(priority=7, run_at=ago(1)), JobFactory(run_at=ago(200))
    pairs = [Source("default", priority) for priority in (-5, 0, 7)]
    assert exchange.claim(4, pairs=pairs) == made(high, early, first, second)
    assert exchange.claim(4, pairs=pairs) == made(late, low)


def test_queues_of_one_priority_are_served_by_time(exchange: Exchange) -> None:
    a, b = (
        [JobFactory(queue="a", run_at=ago(s)) for s in (40, 20)],
        [JobFactory(queue="b", run_at=ago(s)) for s in (30, 10)],
    )
    urgent = JobFactory(queue="b", priority=1, run_at=ago(1))
    pairs = [Source("a", 0), Source("b", 0), Source("b", 1)]
    assert exchange.claim(9, pairs=pairs) == made(urgent, a[0], b[0], a[1], b[1])


def test_only_the_pairs_that_were_asked_for_are_claimed_from(exchange: Exchange) -> None:
    wanted = JobFactory(queue="a", priority=3)
    JobFactory(queue="a", priority=2)
    JobFactory(queue="b", priority=3)
    assert exchange.claim(9, pairs=[Source("a", 3)]) == made(wanted)


def test_what_is_not_due_expired_or_not_claimable_stays(exchange: Exchange) -> None:
    due, failed = JobFactory(run_at=ago(3)), JobFactory(failed=True, run_at=ago(2))
    in_time = JobFactory(run_at=ago(1), expires_at=ago(-600))
    JobFactory(run_at=ago(-600))
    JobFactory(failed=True, run_at=ago(-600))
    JobFactory(run_at=ago(300), expires_at=ago(0.001))
    JobFactory(running=True)
    for trait in ("done", "dead", "cancelled"):
        JobFactory(**{trait: True})
    rows = Job.objects.exclude(pk__in=made(due, failed, in_time)).order_by("id")
    before = list(rows.values())
    assert exchange.claim(99) == made(due, failed, in_time)
    assert list(rows.values()) == before


def test_a_paused_queue_is_left_alone_until_it_is_resumed(exchange: Exchange) -> None:
    paused, open_one = JobFactory(queue="a"), JobFactory(queue="b")
    state = QueueStateFactory(queue="a")
    QueueStateFactory(queue="b", paused=False)
    pairs = [Source("a", 0), Source("b", 0)]
    assert exchange.claim(9, pairs=pairs) == made(open_one)
    state.paused = False
    state.save()
    assert exchange.claim(9, pairs=pairs) == made(paused)


def test_a_cap_bounds_a_queue_over_all_its_priorities(exchange: Exchange) -> None:
    a = [JobFactory(queue="a", priority=p, run_at=ago(s)) for p, s in ((0, 50), (5, 40), (5, 30), (0, 20))]
    b = [JobFactory(queue="b", run_at=ago(s)) for s in (45, 5)]
    pairs = [Source("a", 0, cap=2), Source("a", 5, cap=2), Source("b", 0)]
    assert exchange.claim(9, pairs=pairs) == made(a[1], a[2], b[0], b[1])
    assert exchange.claim(9, pairs=pairs) == made(a[0], a[3])


@pytest.mark.django_db(transaction=True)
def test_a_locked_row_does_not_stand_in_for_a_capped_queue(exchange: Exchange) -> None:
    """Somebody holds the first job's row: the queue's share goes to the next one, not to nobody."""
    first, second, third = (JobFactory(queue="a", run_at=ago(s)) for s in (50, 40, 30))
    other = JobFactory(queue="b", run_at=ago(20))
    pairs = [Source("a", 0, cap=1), Source("b", 0)]
    with Session() as somebody:
        somebody.begin()
        somebody.sql("SELECT 1 FROM django_reliable_jobs_job WHERE id = %s FOR UPDATE", [first.pk])
        assert exchange.claim(2, pairs=pairs, window=18) == made(second, other)
        assert exchange.claim(2, pairs=pairs, window=18) == made(third)


def test_since_skips_what_was_due_before(exchange: Exchange) -> None:
    old, at, after = JobFactory(run_at=ago(50)), JobFactory(run_at=ago(40)), JobFactory(run_at=ago(30))
    assert exchange.claim(9, pairs=[Source("default", 0, since=at.run_at)]) == made(at, after)
    assert exchange.claim(9) == made(old)


def test_since_counts_jobs_of_one_time_by_their_id(exchange: Exchange) -> None:
    """A bulk enqueue gives thousands one `run_at`."""
    jobs = JobFactory.create_batch(4, run_at=ago(40))
    later = JobFactory(run_at=ago(30))
    since = Source("default", 0, since=jobs[0].run_at, job_id=jobs[2].pk)
    assert exchange.claim(9, pairs=[since]) == made(jobs[2], jobs[3], later)


def test_a_last_attempt_and_a_lost_job_are_claimed_for_a_free_slot_only(exchange: Exchange) -> None:
    plain = [JobFactory(run_at=ago(s)) for s in (90, 80)]
    last = JobFactory(run_at=ago(70), max_attempts=5, attempts=4)
    lost = JobFactory(run_at=ago(60), losses=1)
    more = [JobFactory(run_at=ago(s)) for s in (50, 40)]
    assert exchange.claim(1, 9) == made(plain[0], plain[1]), "ahead up to the last attempt, not past it"
    assert exchange.claim(0, 9) == [], "it is not passed over for ever: who has no free slot leaves those behind it too"
    assert exchange.claim(1, 9) == made(last), "the lost one comes next"
    assert exchange.claim(1, 9) == made(lost, *more)


def test_jobs_without_a_limit_of_attempts_may_be_held_ahead(exchange: Exchange) -> None:
    jobs = [JobFactory(run_at=ago(90 - i), max_attempts=None, attempts=1000) for i in range(3)]
    assert exchange.claim(1, 2) == made(*jobs)


def test_free_slots_take_lost_jobs_and_last_attempts_in_order(exchange: Exchange) -> None:
    jobs = [
        JobFactory(run_at=ago(90)),
        JobFactory(run_at=ago(80), losses=2),
        JobFactory(run_at=ago(70), max_attempts=1),
    ]
    assert exchange.claim(3, 5) == made(*jobs)


def test_no_more_than_asked_is_claimed(exchange: Exchange) -> None:
    jobs = [JobFactory(run_at=ago(90 - i)) for i in range(6)]
    assert exchange.claim(2, 1) == made(*jobs[:3])
    assert Job.objects.filter(status="QUEUED").count() == 3


def test_the_window_bounds_what_is_looked_at(exchange: Exchange) -> None:
    JobFactory.create_batch(6)
    got = exchange(wish=ClaimRequest(1, pairs=[Source("default", 0)], window=4))
    assert got.candidates == 4
    assert len(got.leases) == 1


def test_unique_until_start_frees_the_key_at_the_claim(exchange: Exchange) -> None:
    starts = JobFactory(unique_key="s", unique_until_start=True)
    finishes = JobFactory(unique_key="f")
    exchange.claim()
    assert Job.objects.get(pk=starts.pk).unique_key is None
    assert Job.objects.get(pk=finishes.pk).unique_key == "f"
    JobFactory(unique_key="s")  # the follow-up


@pytest.mark.django_db(transaction=True)
def test_a_claim_that_waited_does_not_commit_an_expired_lease(exchange: Exchange) -> None:
    """The lease ends one LEASE after the row was written, not after the statement began."""
    JobFactory()
    with Session() as migration, Session() as worker:
        migration.begin()
        migration.sql("LOCK TABLE django_reliable_jobs_job IN ACCESS EXCLUSIVE MODE")
        answer = worker.start(exchange, wish=ClaimRequest(1, pairs=[Source("default", 0)]), lease=5)
        worker.waits_for(answer)
        # For a while, so that the clocks differ; how long is of no matter.
        migration.sql("SELECT pg_sleep(0.3)")
        released_at = migration.sql("SELECT clock_timestamp()")[0][0]
        migration.commit()
        [lease] = answer.result(60).leases
    job = Job.objects.get(pk=lease.job_id)
    assert job.locked_until is not None
    assert job.locked_until >= released_at + timedelta(seconds=5)


@pytest.mark.django_db(transaction=True)
def test_rows_that_rivals_hold_are_passed_over(exchange: Exchange) -> None:
    jobs = [JobFactory(run_at=ago(90 - i)) for i in range(5)]
    with Session() as rival:
        rival.begin()
        rival.sql(
            "SELECT 1 FROM django_reliable_jobs_job WHERE id = ANY(%s) FOR NO KEY UPDATE", [made(jobs[0], jobs[2])]
        )
        assert exchange.claim(2, window=8) == made(jobs[1], jobs[3])
    assert exchange.claim(9) == made(jobs[0], jobs[2], jobs[4])


@pytest.mark.django_db(transaction=True)
def test_a_row_that_a_checkpoint_refers_to_is_claimed(exchange: Exchange) -> None:
    """An open transaction that inserted a checkpoint holds a key-share lock on the job."""
    job = JobFactory()
    with Session() as writer:
        writer.begin()
        writer.sql("SELECT 1 FROM django_reliable_jobs_job WHERE id = %s FOR KEY SHARE", [job.pk])
        assert exchange.claim() == made(job)


def test_the_times_of_a_lease_do_not_depend_on_use_tz(exchange: Exchange, settings: Any) -> None:
    """The engine compares them with others, and hands them back as `since`."""
    at = datetime(2026, 11, 1, 6, 30, tzinfo=UTC)  # 01:30 in New York for the second time that night
    for _ in range(2):
        JobFactory(run_at=at)
    settings.USE_TZ, settings.TIME_ZONE = False, "America/New_York"
    [lease] = exchange(wish=ClaimRequest(1, pairs=[Source("default", 0)])).leases
    if exchange.function is one_statement.exchange:
        assert lease.run_at == at
    claiming = ClaimPlan(QueueSelection(), 1.0)
    claiming.told("default", 0)
    wish = claiming.wish(1, 0, {})
    assert wish is not None
    got = exchange(wish=wish)
    claiming.claimed(wish, got)
    assert len(got.leases) == 1
    JobFactory(run_at=at)
    again = claiming.wish(1, 0, {})
    assert again is not None
    assert (again.pairs[0].since > BEGINNING, again.pairs[0].job_id) == (True, got.leases[0].job_id)
    if exchange.function is one_statement.exchange:
        assert len(exchange(wish=again).leases) == 1


def test_one_worker_can_claim_its_own_lost_job_again(exchange: Exchange) -> None:
    job = JobFactory(losses=1)
    for _ in range(2):
        [lease] = exchange(wish=ClaimRequest(1, pairs=[Source("default", 0)])).leases
        fetch("UPDATE django_reliable_jobs_job SET status = 'QUEUED', locked_by = NULL, locked_until = NULL")
    assert lease.job_id == job.pk
    assert uuid4() != exchange.worker
