"""What only the Redis store has: a server that forgets, and tokens that come from somewhere else."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_reliable_jobs.errors import LeaseLost
from django_reliable_jobs.guards import claim_once, current_lease, run_exclusive
from django_reliable_jobs.guards.redis import RedisStore
from django_reliable_jobs.store.tokens import fencing_tokens
from tests.support.guards.fixtures import REDIS, Configure
from tests.support.guards.valkey import Valkey
from tests.support.guards.worked_example import store_if_newer


@pytest.fixture
def redis_store(database: None, configure: Configure, valkey: Valkey) -> RedisStore:
    configure(STORE=REDIS, OPTIONS={"url": valkey.url}, TIMEOUT=30)
    return RedisStore(valkey.url)


def test_a_server_that_was_emptied_does_not_bring_old_tokens_back(redis_store: RedisStore, valkey: Valkey) -> None:
    before = redis_store.acquire("default", "k", "me", 60)
    valkey.restart_empty()
    after = redis_store.acquire("default", "k", "you", 60)
    assert before is not None
    assert after is not None
    assert after > before
    assert redis_store.renew("default", "k", before, 60) is False
    assert redis_store.release("default", "k", before) is False
    assert redis_store.acquire("default", "k", "they", 60) is None, "the new holder is still there"


def test_a_holder_whose_server_was_emptied_is_told(redis_store: RedisStore, valkey: Valkey) -> None:
    def hold() -> None:
        lease = current_lease()
        assert lease is not None
        valkey.restart_empty()
        assert lease.lost.wait(60)
        lease.check()

    with pytest.raises(LeaseLost):
        run_exclusive("import", 3, hold)


def test_a_token_that_was_drawn_before_a_rivals_is_drawn_again(
    redis_store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process slept between the draw and the claim; meanwhile a rival with a newer token came and went."""
    drawn = iter([fencing_tokens("default")[0]])
    rival = redis_store.acquire("default", "k", "rival", 60)
    assert rival is not None
    assert redis_store.release("default", "k", rival)
    monkeypatch.setattr(
        "django_reliable_jobs.guards.redis.fencing_tokens",
        lambda alias: [next(drawn, None) or fencing_tokens(alias)[0]],
    )
    mine = redis_store.acquire("default", "k", "me", 60)
    assert mine is not None
    assert mine > rival


def test_an_acquire_on_its_way_is_refused_after_its_release(redis_store: RedisStore) -> None:
    """The caller has left and the claim was taken back, before it arrived."""
    token = fencing_tokens("default")[0]
    assert redis_store.release("default", "k", token) is False
    assert redis_store._run("acquire", "k", "me", token, 60_000, "", 1000) == "free"
    assert redis_store.acquire("default", "k", "you", 60) is not None


def test_the_same_owner_may_ask_again_after_a_lost_answer(redis_store: RedisStore) -> None:
    first = redis_store.acquire("default", "k", "me", 60)
    again = redis_store.acquire("default", "k", "me", 60)
    assert first is not None
    assert again is not None
    assert again > first
    assert redis_store.acquire("default", "k", "you", 60) is None


def test_a_run_that_is_done_cannot_be_renewed_or_released(redis_store: RedisStore) -> None:
    token = redis_store.acquire("default", "k", "me", 60)
    assert token is not None
    assert redis_store.renew("default", "k", token, None, redis_store.now("default") + 600, done=True)
    assert redis_store.renew("default", "k", token, 1) is False
    assert redis_store.release("default", "k", token) is False
    assert redis_store.acquire("default", "k", "you", 60) is None


def test_keys_go_by_themselves_and_claims_without_an_end_stay(redis_store: RedisStore, valkey: Valkey) -> None:
    assert claim_once("event", ttl=60)
    assert claim_once("for good")
    with valkey.client() as client:
        ttls = {key.rpartition(":")[2]: client.pttl(key) for key in client.scan_iter("django_reliable_jobs:guard:*")}
    assert ttls["for good"] == -1
    assert 3_600_000 < ttls["event"] <= 3_660_000


def test_whoever_is_refused_costs_the_database_nothing(
    redis_store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert claim_once("event")
    monkeypatch.setattr("django_reliable_jobs.guards.redis.fencing_tokens", None)
    assert not claim_once("event")


def test_scripts_that_the_server_has_forgotten_are_sent_again(redis_store: RedisStore, valkey: Valkey) -> None:
    assert claim_once("one")
    with valkey.client() as client:
        client.script_flush()
    assert claim_once("two")


def test_the_worked_example_refuses_an_older_writer(valkey: Valkey) -> None:
    with valkey.client() as client:
        assert store_if_newer(client, "thing", 5, "five")
        assert store_if_newer(client, "thing", 5, "five again")
        assert store_if_newer(client, "thing", 7, "seven")
        assert not store_if_newer(client, "thing", 5, "late")
        assert client.hgetall("thing") == {"token": "7", "value": "seven"}


@pytest.mark.parametrize(
    "change", [{"STORE": "nowhere.Store"}, {"STORE": REDIS, "OPTIONS": {"url": "no url"}}, {"OPTIONS": {"speed": 9}}]
)
def test_a_store_that_cannot_be_made_is_a_mistake_in_the_settings(
    configure: Configure, change: dict[str, object]
) -> None:
    configure(**change)
    with pytest.raises(ImproperlyConfigured, match=r'RELIABLE_JOBS\["GUARDS"\]'):
        claim_once("event")
