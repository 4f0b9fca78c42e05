"""Slots go on, whatever happens around a handler."""

from __future__ import annotations

from queue import SimpleQueue
from uuid import uuid4

import pytest

from django_reliable_jobs.attempt import Attempt
from django_reliable_jobs.registry import find
from django_reliable_jobs.states import JobStatus
from django_reliable_jobs.worker.runner import Runner
from django_reliable_jobs.worker.slots import SlotPool
from tests.unit.test_worker_attempt import lease


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


def test_a_written_off_slot_is_replaced_and_its_late_word_is_not_heard() -> None:
    pool, reports = pool_of_one()
    attempt = submit(pool, 1)
    assert reports.get(timeout=30) is attempt
    (slot,) = pool.slots
    pool.write_off(slot)
    assert pool.written_off == 1
    assert slot not in pool.slots
    later = [submit(pool, token) for token in (2, 3)]
    for _ in later:
        assert reports.get(timeout=30).outcome is not None
    pool.close()


@pytest.mark.parametrize(("timeout", "asked"), [(0.2, True), (0.5, False), (3600.0, False), (None, False)])
def test_the_watchdog_that_rests_between_jobs_is_woken_for_a_short_timeout(timeout: float | None, asked: bool) -> None:
    rounds: list[None] = []
    pool = SlotPool(1, "default", uuid4(), lambda _: None)  # not started
    pool.ask_for_a_round(0.5, lambda: rounds.append(None))
    pool.submit(Attempt(lease()._replace(timeout=timeout)), find("probes.noop"))
    assert bool(rounds) == asked
