"""Claims that ended long ago are deleted: by the workers' maintenance, and by guards themselves where none runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connections, transaction
from django.db.models.functions import Now

from django_reliable_jobs.guards import claim_once, claim_period, run_once
from django_reliable_jobs.guards import guard as asking
from django_reliable_jobs.models import GuardClaim
from django_reliable_jobs.store.guards import PRUNE_AGE, prune
from tests.support.sessions import Session, wait_until

#: How long ago a claim of that key has ended; None: it never does.
ENDS = {"old": 86_400 + 60, "older": 86_400 * 90, "not so old": 3600, "live": -3600, "for good": None}
KEPT = {"not so old", "live", "for good"}


@pytest.fixture
def claims(database: None) -> None:
    for key, ago in ENDS.items():
        GuardClaim.objects.create(
            key=key, owner="x", fencing_token=1, claimed_at="2020-01-01T00:00Z",
            expires_at=None if ago is None else Now() - timedelta(seconds=ago),
        )  # fmt: skip


def keys() -> set[str]:
    return set(GuardClaim.objects.filter(key__in=ENDS).values_list("key", flat=True))


def test_only_what_ended_more_than_a_day_ago_goes_and_in_batches(claims: None) -> None:
    assert prune("default", PRUNE_AGE, 1) == 1
    assert keys() == {*KEPT, "old"}, "the oldest goes first"
    assert prune("default", PRUNE_AGE, 1000) == 1
    assert keys() == KEPT
    assert prune("default", PRUNE_AGE, 1000) == 0


def test_a_row_that_somebody_takes_over_just_now_is_left_alone(claims: None) -> None:
    with Session() as taker:
        taker.begin()
        taker.sql("SELECT FROM django_reliable_jobs_guardclaim WHERE key = 'old' FOR UPDATE")
        assert prune("default", PRUNE_AGE, 1000) == 1
    assert keys() == {*KEPT, "old"}


CALLS: list[Callable[[], object]] = [
    lambda: claim_once("new"),
    lambda: claim_period("new", 3600),
    lambda: run_once("new", None, lambda: 1),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("connected", [True, False])
def test_guards_delete_them_now_and_then(
    claims: None, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object], connected: bool
) -> None:
    """Where no worker runs, whether the caller has a connection open (as in a request) or not."""
    monkeypatch.setattr(asking, "PRUNE_SHARE", 0.0)
    assert call()
    assert keys() == set(ENDS), "not every time"
    GuardClaim.objects.exclude(key__in=ENDS).delete()
    monkeypatch.setattr(asking, "PRUNE_SHARE", 1.0)
    if not connected:
        connections.close_all()
    assert call()
    wait_until(lambda: keys() == KEPT, "the old ones are gone")


def test_a_callers_transaction_is_left_alone(claims: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold the rows that it deletes, and who claims one of those keys would wait for it."""
    monkeypatch.setattr(asking, "PRUNE_SHARE", 1.0)
    with transaction.atomic():
        assert claim_once("new")
        assert keys() == set(ENDS)
    assert keys() == set(ENDS)
