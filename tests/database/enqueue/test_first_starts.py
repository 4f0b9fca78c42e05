"""P05, protocol 31: `expires` is about the first start. What has once begun never expires, what has not still can."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from django_reliable_jobs import control
from django_reliable_jobs.models import Job
from django_reliable_jobs.store.exchange import ClaimRequest, Settlement, Source
from django_reliable_jobs.store.reap import expire, reap, release_unheld
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.backoff import Backoff
from django_reliable_jobs.values.outcome import ErrorRecord, Outcome
from tests.database.conftest import Exchange
from tests.support.factories import JobFactory, ago
from tests.support.probes.jobs import echo

pytestmark = pytest.mark.django_db

BEGUN = {
    "failed": outcome.failed(0.0, ErrorRecord("shop.Trouble", "no stock", ""), last_attempt=False),
    "released": outcome.RELEASED,
    "snoozed": outcome.snoozed(0.0),
}
UNBEGUN = {"handed back": outcome.UNBEGUN, "unknown": outcome.unknown_job(0.0)}
ONE = ClaimRequest(1, pairs=[Source("default", 0)])


def claimed(exchange: Exchange, **values: Any) -> tuple[Job, Any]:
    made = JobFactory(**{"expires_at": ago(-600)} | values)
    [lease] = exchange(wish=ClaimRequest(1, pairs=[Source("default", 0)])).leases
    job = Job.objects.get(pk=made.pk)
    assert job.status == "RUNNING"
    return job, lease


def time_passes(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(expires_at=ago(1), run_at=ago(60))


def never_expires(exchange: Exchange, job: Job) -> None:
    """Neither by maintenance nor by the claim; and it is still claimed, with the moment of its first start."""
    first = Job.objects.get(pk=job.pk).first_started_at
    time_passes(job)
    assert expire("default", 10) == 0
    [lease] = exchange(wish=ONE).leases
    assert (lease.job_id, lease.expires_in) == (job.pk, None)
    assert Job.objects.get(pk=job.pk).first_started_at == first is not None


def expires(exchange: Exchange, job: Job) -> None:
    time_passes(job)
    assert exchange(wish=ONE).leases == []
    assert expire("default", 10) == 1
    now = Job.objects.get(pk=job.pk)
    assert (now.status, now.reason, now.first_started_at) == ("CANCELLED", "expired", None)


@pytest.mark.parametrize("given", BEGUN.values(), ids=BEGUN)
def test_what_has_once_begun_never_expires(exchange: Exchange, given: Outcome) -> None:
    job, lease = claimed(exchange)
    assert job.first_started_at == job.started_at
    exchange([Settlement(lease, given)])
    never_expires(exchange, job)


@pytest.mark.parametrize("given", UNBEGUN.values(), ids=UNBEGUN)
def test_what_is_handed_back_unbegun_still_expires(exchange: Exchange, given: Outcome) -> None:
    job, lease = claimed(exchange)
    exchange([Settlement(lease, given)])
    now = Job.objects.get(pk=job.pk)
    assert (now.status, now.attempts, now.first_started_at) == ("QUEUED", 0, None)
    expires(exchange, job)


@pytest.mark.parametrize("given", UNBEGUN.values(), ids=UNBEGUN)
def test_a_later_claim_that_is_handed_back_unbegun_takes_no_start_back(exchange: Exchange, given: Outcome) -> None:
    job, lease = claimed(exchange)
    exchange([Settlement(lease, outcome.RELEASED)])
    [again] = exchange(wish=ONE).leases
    exchange([Settlement(again, given)])
    assert Job.objects.get(pk=job.pk).first_started_at == job.first_started_at
    never_expires(exchange, job)


def test_a_lost_attempt_counts_as_begun(exchange: Exchange) -> None:
    job, _ = claimed(exchange)
    Job.objects.update(locked_until=ago(1))
    assert len(reap("default", Backoff(), 10)) == 1
    never_expires(exchange, job)


def test_a_lost_attempt_that_older_code_has_claimed_counts_as_begun(exchange: Exchange) -> None:
    """Its claim sets no `first_started_at`; an attempt that is given back later leaves no other trace of the start."""
    job, _ = claimed(exchange)
    Job.objects.update(locked_until=ago(1), first_started_at=None)
    assert len(reap("default", Backoff(), 10)) == 1
    Job.objects.update(attempts=0)
    never_expires(exchange, job)


def test_an_attempt_that_older_code_has_settled_counts_as_begun(exchange: Exchange) -> None:
    job = JobFactory(failed=True, first_started_at=None, expires_at=ago(1))
    assert expire("default", 10) == 0
    [lease] = exchange(wish=ONE).leases
    assert (lease.job_id, lease.expires_in) == (job.pk, None), "so its slot does not cancel it either"


def test_a_claim_whose_answer_was_lost_has_not_begun(exchange: Exchange) -> None:
    job, _ = claimed(exchange)
    assert release_unheld("default", exchange.worker, []) == [job.pk]
    expires(exchange, job)


def test_a_later_claim_whose_answer_was_lost_takes_no_start_back(exchange: Exchange) -> None:
    job, lease = claimed(exchange)
    exchange([Settlement(lease, BEGUN["failed"])])
    exchange(wish=ONE)
    assert release_unheld("default", exchange.worker, []) == [job.pk]
    never_expires(exchange, job)


def test_what_a_person_retries_never_expires(exchange: Exchange) -> None:
    job = JobFactory(cancelled=True, reason="expired", expires_at=ago(60))
    assert control.retry(job.pk)
    assert Job.objects.get().expires_at is None, "it was to start by then, and a person wants it all the same"
    assert expire("default", 10) == 0
    assert exchange.claim() == [job.pk]


@pytest.mark.parametrize("if_exists", ["keep", "raise"])
def test_a_holder_of_a_unique_key_that_has_begun_keeps_it_past_its_time(if_exists: Any) -> None:
    held = JobFactory(name=echo.name, failed=True, unique_key="k", expires_at=ago(1))
    call = echo.using(unique_key="k", if_exists=if_exists)
    if if_exists == "keep":
        assert call.enqueue("new").pk == held.pk
        assert echo.using(unique_key="k").enqueue_many([("other",)]) == [held.pk]
    else:
        with pytest.raises(Exception, match="holds the key"):
            call.enqueue("new")
    assert Job.objects.get().status == "FAILED"


def test_a_lease_tells_how_long_its_handler_may_wait_to_begin(exchange: Exchange) -> None:
    _, lease = claimed(exchange, expires_at=ago(-500))
    assert lease.expires_in is not None
    assert 400 < lease.expires_in <= 500
    _, lease = claimed(exchange, expires_at=None)
    assert lease.expires_in is None


def test_what_expired_while_it_was_held_is_cancelled_as_unbegun(exchange: Exchange) -> None:
    job, lease = claimed(exchange)
    exchange([Settlement(lease, outcome.EXPIRED)])
    now = Job.objects.get(pk=job.pk)
    assert (now.status, now.reason, now.attempts, now.first_started_at) == ("CANCELLED", "expired", 0, None)
    assert now.finished_at is not None
    assert now.finished_at <= timezone.now()


def test_a_lost_worker_that_is_known_to_be_dead_leaves_begun_jobs(exchange: Exchange) -> None:
    job, _ = claimed(exchange)
    assert [got.id for got in reap("default", Backoff(), 10, [exchange.worker, uuid4()])] == [job.pk]
    never_expires(exchange, job)
