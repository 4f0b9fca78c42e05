"""Claims on the database store are part of the caller's transaction: they commit or vanish with the effect."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from django_reliable_jobs.errors import GuardUnavailable
from django_reliable_jobs.guards import claim_once, claim_period
from django_reliable_jobs.models import GuardClaim
from tests.support.guards.app.models import Entry
from tests.support.guards.fixtures import REDIS, Configure
from tests.support.guards.valkey import Valkey
from tests.support.sessions import Session, wait_until

LONG = 10 * 365 * 86_400


class Undo(Exception):
    pass


def test_a_rollback_takes_the_claim_back_with_the_effect(way: str) -> None:
    with pytest.raises(Undo), transaction.atomic():
        assert claim_once("invoice:1")
        assert claim_period("report", LONG)
        Entry.objects.create(label="sent")
        raise Undo
    assert not Entry.objects.exists()
    assert claim_once("invoice:1")
    assert claim_period("report", LONG)


def test_a_savepoint_takes_its_own_claims_back_and_no_others(way: str) -> None:
    with transaction.atomic():
        assert claim_once("kept")
        with pytest.raises(Undo), transaction.atomic():
            assert claim_once("given up")
            raise Undo
    assert (claim_once("kept"), claim_once("given up")) == (False, True)


def test_a_caller_that_is_refused_can_go_on_with_its_transaction(way: str) -> None:
    assert claim_once("invoice:1")
    with transaction.atomic():
        assert not claim_once("invoice:1")
        Entry.objects.create(label="something else")
    assert Entry.objects.count() == 1


def test_a_transaction_that_asks_twice_is_refused_by_its_own_claim(way: str) -> None:
    with transaction.atomic():
        assert [claim_once("invoice:1"), claim_once("invoice:1")] == [True, False]


@pytest.mark.parametrize("before", ["no row", "an expired row"])
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_rival_waits_for_the_transaction_and_gets_what_it_leaves(database: None, ending: str, before: str) -> None:
    """G06: whoever is told "done already" finds it done; an attempt that was rolled back leaves the key to the other."""
    if before == "an expired row":
        claim_once("invoice:1", ttl=0.001)
        wait_until(lambda: not live("invoice:1"), "the claim expires")
    with Session() as first, Session() as second:
        first.begin()
        assert first.do(claim_once, "invoice:1")
        answer = second.start(claim_once, "invoice:1")
        second.waits_for(answer)
        getattr(first, ending)()
        assert answer.result(60) is (ending == "rollback")
        assert live("invoice:1")


def test_a_rival_in_a_transaction_of_its_own_can_go_on_with_it(database: None) -> None:
    with Session() as first, Session() as second:
        first.begin()
        second.begin()
        assert first.do(claim_once, "invoice:1")
        answer = second.start(claim_once, "invoice:1")
        second.waits_for(answer)
        first.commit()
        assert answer.result(60) is False
        second.do(lambda: Entry.objects.create(label="still usable"))
        second.commit()
    assert Entry.objects.count() == 1


def test_a_rival_does_not_wait_for_a_claim_that_has_ended_long_ago(database: None) -> None:
    """Whoever is refused holds nothing: a third one does not have to wait for the end of its transaction."""
    assert claim_once("invoice:1", ttl=60)
    with Session() as refused:
        refused.begin()
        assert refused.do(claim_once, "invoice:1") is False
        assert GuardClaim.objects.filter(key="once:invoice:1").delete()[0] == 1


def test_a_rival_does_not_wait_longer_than_the_timeout(database: None, configure: Configure) -> None:
    configure(TIMEOUT=0.5)
    with Session() as first, Session() as second:
        first.begin()
        assert first.do(claim_once, "invoice:1")
        assert first.do(claim_period, "report", LONG)
        with pytest.raises(GuardUnavailable, match="open transaction"):
            second.do(claim_once, "invoice:1")
        assert second.do(claim_period, "report", LONG) is False
        first.rollback()
        assert second.do(claim_once, "invoice:1"), "the statement that was given up has left nothing behind"


def test_a_transaction_whose_claim_was_given_up_does_not_commit(database: None, configure: Configure) -> None:
    configure(TIMEOUT=0.5)
    with Session() as first:
        first.begin()
        assert first.do(claim_period, "report", LONG)
        with pytest.raises(GuardUnavailable), transaction.atomic():
            Entry.objects.create(label="with the claim")
            claim_period("report", LONG)
    assert not Entry.objects.exists()


def test_a_claim_that_waited_for_longer_than_its_ttl_is_made_anew(database: None) -> None:
    """The end must be reckoned from when the claim was made, not from when it was asked for."""
    with Session() as first, Session() as second:
        first.begin()
        assert first.do(claim_once, "invoice:1")
        answer = second.start(claim_once, "invoice:1", ttl=0.3)
        second.waits_for(answer)
        second_ago = Session()
        wait_until(lambda: second_ago.sql("SELECT clock_timestamp() - query_start > '0.4 s' FROM pg_stat_activity WHERE pid = %s", [second.pid])[0][0], "the ttl passes")  # fmt: skip # noqa: E501
        second_ago.__exit__()
        first.rollback()
        assert answer.result(60) is True
        row = GuardClaim.objects.get(key="once:invoice:1")
        assert row.expires_at is not None
        assert row.expires_at > row.claimed_at
        assert (row.expires_at - row.claimed_at).total_seconds() == pytest.approx(0.3, abs=0.01)


def test_on_redis_a_rollback_does_not_take_the_claim_back(database: None, configure: Configure, valkey: Valkey) -> None:
    configure(STORE=REDIS, OPTIONS={"url": valkey.url}, TIMEOUT=30)
    with pytest.raises(Undo), transaction.atomic():
        assert claim_once("invoice:1")
        raise Undo
    assert not claim_once("invoice:1")


def live(key: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM django_reliable_jobs_guardclaim WHERE key = %s AND (expires_at > clock_timestamp()) IS NOT FALSE",  # noqa: E501
            [f"once:{key}"],
        )
        return bool(cursor.fetchone()[0])
