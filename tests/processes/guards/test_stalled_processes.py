"""Processes that are stopped, killed, or too late, with the guards of both stores (G01, G03, G05)."""

from __future__ import annotations

import signal
import time

import pytest

from django_reliable_jobs.models import Fence
from tests.support.guards.actors import Troupe
from tests.support.guards.app.models import Entry, Sheet
from tests.support.guards.valkey import Valkey

TTL = 2


def test_a_holder_that_was_stopped_for_longer_than_its_lease_is_refused_everything(
    troupe: Troupe, valkey: Valkey
) -> None:
    """G03, and two of the three scenes: its lease expires while it is stopped and somebody else takes over. When it
    wakes up, its renewal, its release and its writes are refused, it is told so, and its process lives on."""
    Sheet.objects.create(name="thing")
    first, second = troupe.start(2)
    first.tell("hold", verb="run_exclusive", key="import", ttl=TTL)
    old = first.hear("running")["token"]
    first.signal(signal.SIGSTOP)

    give_up = time.monotonic() + 60
    while True:  # the key is free after the ttl
        second.tell("hold", verb="run_exclusive", key="import", ttl=TTL)
        said = second.hear()
        if said["event"] == "running":
            break
        assert said == {"event": "ended", "how": "not run"}
        assert time.monotonic() < give_up
        time.sleep(0.1)
    new = said["token"]
    assert new > old
    Fence.objects.create(name="thing", fencing_token=new, passed_at="2026-01-01T00:00Z")
    Sheet.objects.update(fencing_token=new, text=f"by {new}")
    with valkey.client() as client:
        client.hset("thing", mapping={"token": new, "value": f"by {new}"})

    first.signal(signal.SIGCONT)
    assert first.hear("told") == {"event": "told", "lost": True}
    assert first.hear("wrote") == {"event": "wrote", "fence": "StaleToken", "row": "StaleToken", "redis": "refused"}
    assert first.hear("ended")["how"] == "LeaseLost"
    assert first.ask("ping") == {"event": "pong"}, "the process itself lives on"
    assert not Entry.objects.filter(token=old).exists(), "the whole transaction was refused"

    assert second.quiet(1.5 * TTL), "the new holder's lease is still being renewed, and was not released by the old one"
    first.tell("hold", verb="run_exclusive", key="import", ttl=TTL)
    assert first.hear("ended")["how"] == "not run"
    second.tell("finish")
    assert second.hear("wrote") == {"event": "wrote", "fence": "written", "row": "written", "redis": "written"}
    assert second.hear("ended")["how"] == "done"


def test_the_key_of_a_holder_that_was_killed_is_free_after_its_ttl(troupe: Troupe) -> None:
    """G05: nobody has to delete anything."""
    first, second = troupe.start(2)
    first.tell("hold", verb="run_once", key="import", ttl=TTL)
    first.hear("running")
    first.signal(signal.SIGKILL)
    killed = time.monotonic()
    while True:
        second.tell("hold", verb="run_once", key="import", ttl=TTL)
        if second.hear()["event"] == "running":
            break
        assert time.monotonic() - killed < 60
        time.sleep(0.1)
    second.tell("finish")
    second.hear("wrote")
    assert second.hear("ended")["how"] == "done"


@pytest.mark.parametrize("verb", ["claim_period", "claim_once"])
def test_a_claim_that_was_held_up_on_its_way_is_decided_when_it_arrives(troupe: Troupe, verb: str) -> None:
    """G01: everything was computed before a pause of several ttls; nothing of that may count after it."""
    first, second = troupe.start(2)
    first.tell("late", verb=verb, key="tick")
    first.hear("before the claim")
    time.sleep(2.5)
    limit = 100_000_000 if verb == "claim_period" else 3600
    assert second.ask("claim", verb=verb, key="tick", limit=limit)["got"] is True
    first.tell("finish")
    assert first.hear()["got"] is False


def test_wrong_clocks_of_hosts_change_nothing(troupe: Troupe) -> None:
    """90 seconds late and early: the periods and the ttls are the store's."""
    (slow,) = troupe.start(CLOCK_OFFSET="-90")
    (fast,) = troupe.start(CLOCK_OFFSET="90")
    said = [slow.ask("claim", verb="claim_period", key="report", limit=100_000_000)]
    said.append(fast.ask("claim", verb="claim_period", key="report", limit=100_000_000))
    assert [one["got"] for one in said] == [True, False]
    assert said[1]["host_time"] - said[0]["host_time"] > 170, "the clocks are wrong indeed"
    assert fast.ask("claim", verb="claim_once", key="mail", limit=60)["got"] is True
    assert slow.ask("claim", verb="claim_once", key="mail", limit=60)["got"] is False
    assert fast.ask("claim", verb="claim_once", key="mail", limit=60)["got"] is False, "60 s have not passed"

    fast.tell("hold", verb="run_exclusive", key="import", ttl=TTL)
    fast.hear("running")
    deadline = time.monotonic() + 1.5 * TTL
    while time.monotonic() < deadline:
        slow.tell("hold", verb="run_exclusive", key="import", ttl=TTL)
        assert slow.hear("ended")["how"] == "not run"
        time.sleep(0.1)
    fast.tell("finish")
    fast.hear("wrote")
    assert fast.hear("ended")["how"] == "done"
    slow.tell("hold", verb="run_exclusive", key="import", ttl=TTL)
    slow.hear("running")
