"""The watchdog goes on, whatever it meets: without it no deadline is kept."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from django_reliable_jobs.connections.statement_deadline import StatementDeadline
from django_reliable_jobs.definitions.registry import find
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.values.states import REASON_DEADLINE
from django_reliable_jobs.worker import watchdog as deadlines
from django_reliable_jobs.worker.handlers.slots import SlotPool
from django_reliable_jobs.worker.shared_state import HEARTBEAT, SharedState
from django_reliable_jobs.worker.watchdog import Watchdog
from tests.support.fleet import wait_until
from tests.unit.running.test_attempt import lease


class Heartbeat:
    """One that has nothing to ask."""

    is_asking = False
    tries = 0

    def __init__(self) -> None:
        self.shared = SharedState(10)


class BrokenConnection:
    alias = connection.alias
    looks = 0

    @property
    def connection(self) -> Any:
        self.looks += 1
        raise RuntimeError("the state of this connection is broken")


def test_a_connection_that_cannot_be_looked_at_does_not_end_the_watchdog() -> None:
    """Case P36."""
    patience = StatementDeadline(0.1)
    broken = BrokenConnection()
    patience._waiting[1] = (time.monotonic() - 60, broken, 0)  # type: ignore[assignment]
    reports: list[Attempt] = []
    pool = SlotPool(1, "default", uuid4(), reports.append)
    watchdog = Watchdog(pool, Heartbeat(), patience, 30.0, lambda: None)  # type: ignore[arg-type]
    pool.start()
    watchdog.start()
    try:
        attempt = Attempt(lease(name="probes.just_in_time", args="[60]", timeout=0.2))
        pool.submit(attempt, find("probes.just_in_time"))
        wait_until(lambda: reports, "the deadline")
        wait_until(lambda: broken.looks > 1, "the watchdog looks again")
        assert watchdog.is_alive()
        assert attempt.outcome is not None
        assert attempt.outcome.reason == REASON_DEADLINE
    finally:
        watchdog.stop()
        pool.close()


@pytest.mark.parametrize("beats", [False, True], ids=["it has ended", "it stands still"])
def test_a_heartbeat_that_does_not_move_any_more_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, settings: Any, beats: bool
) -> None:
    """Case P02: whoever looks after the others has somebody who looks after it."""
    settings.RELIABLE_JOBS = {"LEASE": 3, "HEARTBEAT": 1}
    monkeypatch.setattr(deadlines, "ENDING", 6.0)
    heartbeat = Heartbeat()
    if beats:
        heartbeat.shared.join(HEARTBEAT)
    reasons: list[str] = []
    heartbeat.end_stuck = reasons.append  # type: ignore[attr-defined]
    pool = SlotPool(1, "default", uuid4(), lambda _: None)
    watchdog = Watchdog(pool, heartbeat, StatementDeadline(60), 30.0, lambda: None)  # type: ignore[arg-type]
    watchdog.start()
    try:
        until = time.monotonic() + 4
        while time.monotonic() < until:
            heartbeat.shared.moved()
            time.sleep(0.1)
        wait_until(lambda: reasons, "the end")
        assert "its heartbeat thread has not moved for 6" in reasons[0]
        assert not beats or time.monotonic() - until > 4, "not while it moved"
    finally:
        watchdog.stop()


def test_a_process_that_stood_still_does_not_take_its_own_pause_for_one_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler keeps the interpreter for longer than the limit: the answer is there, and is read after the first look."""
    cut: list[Any] = []
    monkeypatch.setattr(
        "django_reliable_jobs.connections.statement_deadline.cancel_and_cut", lambda mine, _: cut.append(mine)
    )
    patience, mine = StatementDeadline(0.1), SimpleNamespace(connection="open")

    def stands_still() -> None:
        for me, (started, _, times) in list(patience._waiting.items()):
            patience._waiting[me] = (started - 60, mine, times)  # type: ignore[assignment]

    for _ in range(3):
        with patience.wait_for(connection):
            stands_still()
            patience.cut_the_overdue()
    assert cut == [], "it was overdue at one look only"
    with patience.wait_for(connection):
        stands_still()
        patience.cut_the_overdue()
        patience.cut_the_overdue()
        patience.cut_the_overdue()
    assert cut == [mine], "nothing came between two looks"
