"""Slots go on, whatever happens around a handler."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from queue import SimpleQueue
from unittest.mock import Mock
from uuid import uuid4

import pytest

from django_reliable_jobs.connections.statement_deadline import StatementDeadline
from django_reliable_jobs.definitions.registry import find
from django_reliable_jobs.errors import DeadlineExceeded
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.states import JobStatus
from django_reliable_jobs.worker.handlers.runner import Runner
from django_reliable_jobs.worker.handlers.slots import SlotPool
from django_reliable_jobs.worker.watchdog import Watchdog
from tests.unit.running.test_attempt import lease


def pool_of_one() -> tuple[SlotPool, SimpleQueue[Attempt]]:
    reports: SimpleQueue[Attempt] = SimpleQueue()
    pool = SlotPool(1, "default", uuid4(), reports.put)
    pool.start()
    return pool, reports


def submit(pool: SlotPool, token: int) -> Attempt:
    attempt = Attempt(lease(token=token))
    pool.submit(attempt, find("probes.noop"))
    return attempt


@pytest.mark.parametrize("where", ["run", "tidy"])
def test_a_slot_outlives_trouble_around_its_handlers(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """No more threads, no more files: the attempt fails or stays as it was decided, the next one runs."""
    pool, reports = pool_of_one()
    with monkeypatch.context() as broken:

        def fail(*_: object, **__: object) -> object:
            raise RuntimeError("can't start new thread")

        broken.setattr(Runner, where, fail)
        first = submit(pool, 1)
        assert reports.get(timeout=30) is first
        assert first.outcome is not None
        assert first.outcome.status == (JobStatus.FAILED if where == "run" else JobStatus.DONE)
    second = submit(pool, 2)
    while (reported := reports.get(timeout=30)) is first:
        pass
    assert reported is second
    assert second.outcome is not None
    assert second.outcome.status == JobStatus.DONE
    assert pool.free == 1
    pool.close()


def test_what_no_slot_has_begun_can_be_withdrawn() -> None:
    reports: SimpleQueue[Attempt] = SimpleQueue()
    pool = SlotPool(2, "default", uuid4(), reports.put)  # not started
    waiting = [submit(pool, token) for token in range(3)]
    assert pool.free == -1
    assert pool.withdraw() == waiting
    assert pool.free == 2
    assert pool.withdraw() == []


class Handler:
    """What a slot runs instead of its job: it says when it begins, and ends when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: SimpleQueue[Attempt] = SimpleQueue()
        self.go: dict[Attempt, threading.Event] = defaultdict(threading.Event)
        monkeypatch.setattr(Runner, "run", lambda _, attempt, __: self._run(attempt))

    def _run(self, attempt: Attempt) -> tuple[outcome.Outcome, bool]:
        self.begun.put(attempt)
        assert self.go[attempt].wait(60)
        return outcome.DONE, False


def test_a_written_off_slot_is_replaced_and_its_late_word_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = Handler(monkeypatch)
    pool, reports = pool_of_one()
    attempt = submit(pool, 1)
    assert handler.begun.get(timeout=30) is attempt
    (slot,) = pool.slots
    assert pool.write_off(slot, attempt)
    assert reports.get(timeout=30) is attempt
    assert pool.written_off == 1
    assert slot not in pool.slots
    handler.go[attempt].set()
    slot.join(30)
    assert not slot.is_alive()
    assert attempt.outcome is None
    later = [submit(pool, token) for token in (2, 3)]
    for another in later:
        handler.go[another].set()
        assert reports.get(timeout=30).outcome is not None
    assert reports.empty()
    pool.close()


def test_a_slot_that_has_gone_on_to_another_attempt_is_not_written_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog has looked, the handler comes back, the slot begins the next one, the watchdog acts (case P24)."""
    handler = Handler(monkeypatch)
    pool, reports = pool_of_one()
    late, following = submit(pool, 1), submit(pool, 2)
    (slot,) = pool.slots
    assert handler.begun.get(timeout=30) is late
    handler.go[late].set()
    assert handler.begun.get(timeout=30) is following
    assert not pool.write_off(slot, late)
    assert pool.slots == [slot], "the watchdog still sees to it"
    assert following in pool.occupied
    handler.go[following].set()
    assert [reports.get(timeout=30) for _ in range(2)] == [late, following]
    assert following.outcome is outcome.DONE
    pool.close()


@pytest.mark.parametrize(("timeout", "asked"), [(0.2, True), (0.5, False), (3600.0, False), (None, False)])
def test_the_watchdog_that_rests_between_jobs_is_woken_for_a_short_timeout(timeout: float | None, asked: bool) -> None:
    rounds: list[None] = []
    pool = SlotPool(1, "default", uuid4(), lambda _: None)  # not started
    pool.ask_for_a_round(0.5, lambda: rounds.append(None))
    pool.submit(Attempt(lease()._replace(timeout=timeout)), find("probes.noop"))
    assert bool(rounds) == asked


def test_a_slot_is_not_free_until_its_connections_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case P10: a clean-up that hangs is written off, with the outcome that the handler came to."""
    tidies, go_on = threading.Event(), threading.Event()

    def hang(_: Runner) -> bool:
        tidies.set()
        assert go_on.wait(60)
        return True

    monkeypatch.setattr(Runner, "tidy", hang)
    pool, reports = pool_of_one()
    attempt = submit(pool, 1)
    assert tidies.wait(30)
    (slot,) = pool.slots
    assert (pool.free, slot.current and slot.current[0], reports.empty()) == (0, attempt, True)
    assert not attempt.stop(DeadlineExceeded), "it is decided: no deadline hits the clean-up"
    look_at = watchdog_of(pool)._look_at
    look_at(slot, time.monotonic() - 60)
    assert pool.slots == [slot]
    look_at(slot, time.monotonic() + 60)
    assert reports.get(timeout=30) is attempt
    assert attempt.outcome is outcome.DONE
    assert (pool.free, pool.written_off, slot in pool.slots) == (1, 1, False)
    go_on.set()
    slot.join(30)
    assert reports.empty()
    pool.close()


def watchdog_of(pool: SlotPool) -> Watchdog:
    return Watchdog(pool, Mock(), StatementDeadline(15), 5, lambda: None)
