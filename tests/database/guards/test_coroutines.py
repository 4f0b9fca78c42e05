"""The runs' twins for coroutines."""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.sync import sync_to_async

from django_reliable_jobs.errors import LeaseLost
from django_reliable_jobs.guards import GuardResult, arun_exclusive, arun_once, current_lease, run_exclusive
from django_reliable_jobs.guards.guard import Guard
from tests.support.guards.fixtures import run

LONG = 10 * 365 * 86_400


async def steal(key: str) -> None:
    guard = Guard.of("exclusive", key, None)
    lease = current_lease()
    assert lease is not None
    assert await sync_to_async(guard.release)(lease.token)
    assert await sync_to_async(guard.acquire)(60) is not None


async def add(a: int, *, b: int) -> int:
    await asyncio.sleep(0)
    assert current_lease() is not None
    return a + b


def test_a_coroutine_function_runs_and_its_value_comes_back(store: str) -> None:
    async def main() -> list[GuardResult[int]]:
        return [
            await arun_exclusive("import", 30, add, 1, b=2),
            await arun_exclusive("import", 30, add, 2, b=2),
            await arun_once("report", LONG, add, 3, b=2),
            await arun_once("report", LONG, add, 4, b=2),
        ]

    assert run(main()) == [GuardResult(True, 3), GuardResult(True, 4), GuardResult(True, 5), GuardResult(False)]


def test_a_plain_function_runs_in_a_thread(store: str) -> None:
    async def main() -> None:
        result = await arun_exclusive("import", 30, threading.current_thread)
        assert result.value is not threading.current_thread()
        assert await arun_once("report", LONG, lambda: 1)
        assert not await arun_once("report", LONG, lambda: 1)

    run(main())


def test_of_many_tasks_one_runs(store: str) -> None:
    async def main() -> list[GuardResult[None]]:
        return await asyncio.gather(*(arun_exclusive("import", 30, asyncio.sleep, 0.5) for _ in range(5)))

    assert sum(map(bool, run(main()))) == 1


def test_a_coroutine_whose_lease_is_lost_is_cancelled_at_its_await(store: str) -> None:
    seen: list[str] = []

    async def lose() -> None:
        await steal("import")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        with pytest.raises(LeaseLost, match="'import'"):
            await arun_exclusive("import", 1, lose)
        await asyncio.sleep(0.05)  # a cancellation that is still on its way would come now
        seen.append("and on")

    run(main())
    assert seen == ["cancelled", "and on"]


def test_a_coroutine_that_swallows_its_cancellation_is_no_success(store: str) -> None:
    async def lose() -> str:
        await steal("import")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        return "done, but not alone"

    async def main() -> None:
        with pytest.raises(LeaseLost):
            await arun_exclusive("import", 1, lose)

    run(main())


def test_cancelling_the_caller_cancels_the_function_and_frees_the_key(store: str) -> None:
    async def main() -> None:
        running = asyncio.Event()

        async def wait() -> None:
            running.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(arun_exclusive("import", 30, wait))
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await arun_exclusive("import", 30, asyncio.sleep, 0)

    run(main())


def test_an_exception_is_the_callers_and_frees_the_key(store: str) -> None:
    async def fail() -> None:
        raise ValueError("no")

    async def main() -> None:
        with pytest.raises(ValueError, match="no"):
            await arun_once("report", LONG, fail)
        assert await arun_once("report", LONG, asyncio.sleep, 0)

    run(main())


def test_the_lease_is_renewed_while_the_loop_is_blocked(store: str) -> None:
    """A thread keeps it, not the loop."""

    async def block() -> bool:
        threading.Event().wait(1.5)
        return True

    assert run(arun_exclusive("import", 1, block)).value is True


def test_functions_and_coroutines_share_the_keys(store: str) -> None:
    async def inner() -> GuardResult[int]:
        return await sync_to_async(run_exclusive)("import", 30, lambda: 1)

    assert run(arun_exclusive("import", 30, inner)).value == GuardResult(False)
