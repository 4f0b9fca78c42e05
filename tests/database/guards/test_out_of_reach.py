"""The store cannot be reached, is slow, or stands still: every call ends within the timeout, and closed (G05)."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connection, connections

from django_reliable_jobs.errors import GuardUnavailable, LeaseLost
from django_reliable_jobs.guards import claim_once, claim_period, current_lease, run_exclusive, run_once
from django_reliable_jobs.guards import guard as asking
from django_reliable_jobs.guards.protocol import current_store
from testproject.pgbouncer import PgBouncer
from testproject.postgres import EmbeddedPostgres
from tests.chaos.proxy import Proxy
from tests.support.guards.fixtures import REDIS, Configure
from tests.support.guards.valkey import Valkey
from tests.support.sessions import wait_until

LONG = 10 * 365 * 86_400
TIMEOUT = 1.0
#: What a busy machine may add to a timeout. A call that hangs takes minutes.
SLACK = 10.0


@pytest.fixture(params=["database", "redis", "pgbouncer"])
def proxy(
    request: pytest.FixtureRequest, database: None, configure: Configure, postgres: EmbeddedPostgres
) -> Iterator[Proxy]:
    """Between the guards and their store."""
    configure(TIMEOUT=TIMEOUT)
    address = connections.settings["default"]
    before = dict(address)
    if request.param == "redis":
        valkey: Valkey = request.getfixturevalue("valkey")
        with Proxy(("127.0.0.1", valkey.port)) as made:
            configure(STORE=REDIS, OPTIONS={"url": f"redis://127.0.0.1:{made.port}/0"})
            yield made
        return
    with ExitStack() as stack:
        port = postgres.port
        if request.param == "pgbouncer":  # the database again, with the network between the guards and a pooler
            port = stack.enter_context(PgBouncer(postgres, pool_size=2, tcp=True)).port
        made = stack.enter_context(Proxy(("127.0.0.1", port)))
        connections.close_all()
        address.update(HOST="127.0.0.1", PORT=str(made.port), PASSWORD=postgres.password)
        yield made
        made.thaw()
        made.cut()
        made.latency = 0
        connections.close_all()
        address.clear()
        address.update(before)


def calls() -> dict[str, Callable[[], object]]:
    return {
        "claim_period": lambda: claim_period("report", LONG),
        "claim_once": lambda: claim_once("event"),
        "run_once": lambda: run_once("report", LONG, lambda: 1),
        "run_exclusive": lambda: run_exclusive("import", 30, lambda: 1),
    }


def assert_closed() -> None:
    """`claim_period` is False, the others raise, and all of them soon."""
    for name, call in calls().items():
        started = time.monotonic()
        if name == "claim_period":
            assert call() is False
        else:
            with pytest.raises(GuardUnavailable):
                call()
        assert time.monotonic() - started < TIMEOUT + SLACK, name


def assert_open() -> None:
    """After a trouble everything works again by itself."""
    for name, call in calls().items():
        wait_until(lambda call=call: attempt(call), f"{name} works again")  # type: ignore[misc]


def attempt(call: Callable[[], object]) -> bool:
    try:
        return bool(call())
    except GuardUnavailable:
        return False


@pytest.mark.parametrize("connected", [True, False])
def test_a_store_that_stands_still_is_noticed_within_the_timeout(proxy: Proxy, connected: bool) -> None:
    """Connections are taken and nobody answers, which no error ever tells."""
    if connected:
        assert claim_once("before")
        connection.ensure_connection()
    with proxy.frozen():
        assert_closed()
    proxy.cut()
    assert_open_but_for_what_came_through()


def assert_open_but_for_what_came_through() -> None:
    """What was on its way when the network stood still may have arrived after all: another key tells."""
    wait_until(lambda: attempt(lambda: claim_once(f"after {time.monotonic()}")), "the store is back")


def test_a_store_that_refuses_connections_is_noticed_at_once(database: None, configure: Configure) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    configure(TIMEOUT=TIMEOUT, STORE=REDIS, OPTIONS={"url": f"redis://127.0.0.1:{port}/0"})
    assert_closed()


def test_a_redis_whose_process_is_stopped(database: None, configure: Configure, valkey: Valkey) -> None:
    configure(TIMEOUT=TIMEOUT, STORE=REDIS, OPTIONS={"url": valkey.url})
    assert claim_once("before")
    valkey.freeze()
    try:
        assert_closed()
    finally:
        valkey.thaw()
    assert_open_but_for_what_came_through()


def test_a_slow_store_is_waited_for_within_the_timeout_and_not_longer(proxy: Proxy, configure: Configure) -> None:
    configure(TIMEOUT=30)
    proxy.latency = 0.05
    assert claim_once("slow")
    assert run_exclusive("import", 30, lambda: 1)
    configure(TIMEOUT=0.3)
    proxy.latency = 1.0
    assert_closed()


def test_a_claim_that_arrives_after_its_caller_has_left_is_taken_back(
    proxy: Proxy, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller gives up while its helper is on the way; then the claim is granted, and nobody is there to have it."""
    configure(TIMEOUT=30)
    assert claim_once("before")  # scripts are known
    store = type(current_store())
    left, granted = threading.Event(), threading.Event()
    acquire = store.acquire

    def late(*args: Any) -> int | None:
        left.wait(60)
        token = acquire(*args)
        granted.set()
        return token

    monkeypatch.setattr(store, "acquire", late)
    connections.close_all()
    configure(TIMEOUT=0.3)
    with pytest.raises(GuardUnavailable):
        claim_once("event")
    monkeypatch.setattr(store, "acquire", acquire)
    configure(TIMEOUT=30)
    left.set()
    assert granted.wait(60)
    wait_until(lambda: claim_once("event"), "the key is free again")


def test_connections_that_were_cut_are_made_again_in_the_same_call(proxy: Proxy) -> None:
    for number in range(3):
        assert claim_once(f"event {number}")
        connection.ensure_connection()
        proxy.cut()
    assert run_exclusive("import", 30, lambda: proxy.cut() and None).ran


def test_a_lease_that_cannot_be_renewed_is_lost_when_its_ttl_is_over_and_not_later(proxy: Proxy) -> None:
    """Before anybody else can have it: the holder reckons from before it asked."""
    took: list[float] = []

    def hold() -> None:
        started = time.monotonic()
        lease = current_lease()
        assert lease is not None
        proxy.freeze()
        try:
            lease.lost.wait(60)
        finally:  # LeaseLost may come before the next line
            took.append(time.monotonic() - started)
        lease.check()

    with pytest.raises(LeaseLost):
        run_exclusive("import", 2, hold)
    proxy.thaw()
    assert took[0] < 2 + SLACK
    assert current_lease() is None


def test_a_short_outage_costs_no_lease(proxy: Proxy) -> None:
    def hold() -> bool:
        lease = current_lease()
        assert lease is not None
        proxy.freeze()
        time.sleep(2.5)
        proxy.cut()
        proxy.thaw()
        return lease.lost.wait(2)

    assert run_exclusive("import", 10, hold).value is False


def test_an_outage_is_said_once_a_minute(
    database: None, configure: Configure, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    configure(TIMEOUT=TIMEOUT, STORE=REDIS, OPTIONS={"url": f"redis://127.0.0.1:{port}/0"})
    for _ in range(5):
        assert claim_period("report", LONG) is False
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "guard period:report: Redis is out of reach" in caplog.text
    monkeypatch.setattr(asking.complaints, "_last", time.monotonic() - asking.SAY_AGAIN)
    assert claim_period("report", LONG) is False
    assert len(caplog.records) == 2
    assert "(4 more since the last message)" in caplog.text


def test_a_forked_child_has_helpers_of_its_own(database: None) -> None:
    connections.close_all()
    assert claim_once("parent")
    pid = os.fork()
    if pid == 0:
        connections.close_all()
        os._exit(0 if claim_once("child") and not claim_once("parent") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
