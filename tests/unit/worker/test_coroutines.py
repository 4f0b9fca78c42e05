"""The event loop of a slot: one handler after the other, whatever each of them leaves behind."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from django_reliable_jobs.worker.handlers.coroutines import CoroutineRunner


@pytest.fixture
def runner() -> Iterator[CoroutineRunner]:
    made = CoroutineRunner("slot-1")
    yield made
    made.close()


def run(runner: CoroutineRunner, coroutine: Coroutine[Any, Any, Any]) -> Any:
    return runner.run(coroutine, contextvars.copy_context())


async def value(what: Any, naps: int = 0) -> Any:
    for _ in range(naps):
        await asyncio.sleep(0.001)
    return what


@pytest.mark.parametrize("naps", [0, 3])
def test_it_returns_what_the_handler_returns(runner: CoroutineRunner, naps: int) -> None:
    assert [run(runner, value(number, naps)) for number in range(5)] == list(range(5))
    assert runner.tidy(tainted=False)


@pytest.mark.parametrize("naps", [0, 3])
def test_it_raises_what_the_handler_raises_and_runs_the_next(runner: CoroutineRunner, naps: int) -> None:
    async def fail() -> None:
        await value(1, naps)
        raise LookupError("not there")

    with pytest.raises(LookupError, match="not there"):
        run(runner, fail())
    assert run(runner, value(2)) == 2


def test_tasks_and_callbacks_of_a_handler_do_not_reach_the_next(runner: CoroutineRunner) -> None:
    ended: list[str] = []

    async def for_ever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    async def leaves_a_task() -> str:
        leaves_a_task.kept = asyncio.create_task(for_ever())  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        return "done"

    async def leaves_a_callback() -> str:
        asyncio.get_running_loop().call_soon(ended.append, "callback")
        return "done"

    assert run(runner, leaves_a_task()) == "done"
    assert ended == ["cancelled"]
    assert runner.tidy(tainted=False)
    assert run(runner, leaves_a_callback()) == "done"
    assert run(runner, value(3, naps=1)) == 3


def test_the_task_of_the_handler_is_the_current_one(runner: CoroutineRunner) -> None:
    async def in_time() -> str:
        async with asyncio.timeout(60):  # needs it
            await asyncio.sleep(0)
            return "yes" if asyncio.current_task() is runner._main else "no"

    assert run(runner, in_time()) == "yes"


def test_a_handler_that_stops_its_loop_has_failed(runner: CoroutineRunner) -> None:
    async def stops() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(3600)

    with pytest.raises(RuntimeError, match="stopped the event loop"):
        run(runner, stops())
    assert run(runner, value(4)) == 4


def test_it_is_cancelled_at_its_await_from_another_thread(runner: CoroutineRunner) -> None:
    started = threading.Event()

    async def waits() -> None:
        started.set()
        await asyncio.sleep(3600)

    def cancel() -> None:
        started.wait()
        assert runner.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(asyncio.CancelledError):
        run(runner, waits())
    thread.join()
    assert not runner.cancel(), "none runs"
    assert run(runner, value(5)) == 5
