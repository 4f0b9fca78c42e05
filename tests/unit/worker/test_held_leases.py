"""What a worker holds, and what it does with outcomes that the database did not take at once."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import connection

from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.store.exchange import ClaimRequest, Source, exchange
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.lease import LeaseKey
from django_reliable_jobs.values.outcome import ErrorRecord
from django_reliable_jobs.worker.leases.held_leases import HeldLeases, offer_of
from tests.support.probes import jobs as probes

pytestmark = pytest.mark.django_db(transaction=True)
WORKER = uuid4()


def claim(held_leases: HeldLeases, count: int) -> list[Attempt]:
    """Enqueue and claim so many jobs, held in the ledger."""
    probes.noop.enqueue_many([(n,) for n in range(count)])
    got = exchange("default", WORKER, 30, [], ClaimRequest(free=count, pairs=[Source("default", 0)], window=count))
    attempts = [Attempt(lease) for lease in got.leases]
    for attempt in attempts:
        held_leases.hold(attempt)
    return attempts


def offer(held_leases: HeldLeases) -> set[LeaseKey]:
    offered = held_leases.to_offer()
    settled = exchange("default", WORKER, 30, [offer_of(attempt) for attempt in offered], ClaimRequest()).settled
    held_leases.account(offered, settled)
    return settled


def test_a_recorded_outcome_is_held_no_longer() -> None:
    held_leases = HeldLeases("default")
    attempts = claim(held_leases, 3)
    for attempt in attempts:
        attempt.decide(outcome.DONE)
        held_leases.decided(attempt)
    assert len(offer(held_leases)) == 3
    assert held_leases.nothing_held
    assert held_leases.counts == {"DONE": 3}
    assert held_leases.wait() is None


def test_a_lost_lease_is_dropped_and_counted() -> None:
    held_leases = HeldLeases("default")
    (attempt,) = claim(held_leases, 1)
    Job.objects.update(fencing_token=attempt.lease.token + 1)
    attempt.decide(outcome.DONE)
    held_leases.decided(attempt)
    assert not offer(held_leases)
    assert held_leases.nothing_held
    assert held_leases.counts == {"refused": 1}
    assert Job.objects.get().status == JobStatus.RUNNING


def test_what_an_answer_that_was_lost_had_recorded_is_not_offered_for_ever() -> None:
    held_leases = HeldLeases("default")
    (attempt,) = claim(held_leases, 1)
    attempt.decide(outcome.DONE)
    held_leases.decided(attempt)
    exchange("default", WORKER, 30, [offer_of(attempt)], ClaimRequest())  # its answer did not arrive
    assert not offer(held_leases)
    assert held_leases.nothing_held
    assert held_leases.counts == {"DONE": 1}


def test_an_outcome_that_the_database_refuses_does_not_hold_up_the_others() -> None:
    held_leases = HeldLeases("default")
    attempts = claim(held_leases, 3)
    bad = attempts[1]
    for attempt in attempts:
        attempt.decide(outcome.dead("permanent failure", ErrorRecord("X", "a\x00b" if attempt is bad else "a", "")))
        held_leases.decided(attempt)

    def alone(offers: list[object]) -> set[LeaseKey]:
        return exchange("default", WORKER, 30, offers, ClaimRequest()).settled  # type: ignore[arg-type]

    held_leases.offer_one_by_one(alone, connection.close)  # type: ignore[arg-type]
    assert list(held_leases.held) == [bad.lease.key]
    assert len(offer(held_leases)) == 1
    assert held_leases.nothing_held
    reasons = dict(Job.objects.values_list("pk", "reason"))
    assert sorted(reasons.values()) == ["outcome not stored", "permanent failure", "permanent failure"]
    assert reasons[bad.lease.job_id] == "outcome not stored"


def test_news_of_what_is_not_held_any_more_is_ignored() -> None:
    held_leases = HeldLeases("default")
    (attempt,) = claim(held_leases, 1)
    attempt.decide(outcome.DONE)
    held_leases.decided(attempt)
    offer(held_leases)
    held_leases.decided(attempt)  # a thread that was written off comes back
    assert held_leases.to_offer() == []
    assert held_leases.nothing_held


def test_an_attempt_without_an_outcome_is_not_offered() -> None:
    held_leases = HeldLeases("default")
    (attempt,) = claim(held_leases, 1)
    held_leases.decided(attempt)
    assert held_leases.to_offer() == []
    assert not held_leases.nothing_held
    assert held_leases.held_by_queue() == {"default": 1}
