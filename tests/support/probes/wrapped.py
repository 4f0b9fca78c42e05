"""Handlers whose work begins only after the call: behind decorators that do not know of coroutines, and the like."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from asgiref.sync import sync_to_async

from django_reliable_jobs import current_job, job
from django_reliable_jobs.guards import claim_once, claim_period, guarded, run_exclusive, run_once
from tests.support.probes.models import Mark


def note(label: str) -> str:
    ctx = current_job()
    Mark.objects.create(label=label, job_id=ctx.job_id if ctx else 0)
    return label


async def anote(label: str) -> str:
    return await sync_to_async(note)(label)


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that knows nothing of coroutines."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Counting:
    """A decorator as a class."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, label: str) -> Any:
        return self.function(label)


class Awaiting:
    """A callable object, and one whose call is a coroutine."""

    async def __call__(self, label: str) -> str:
        return await anote(label)

    def method(self, label: str) -> Any:
        return anote(label)


class Later:
    """An awaitable that is no coroutine."""

    def __init__(self, label: str) -> None:
        self.label = label

    def __await__(self) -> Any:
        return anote(self.label).__await__()


def returns_a_coroutine(label: str) -> Coroutine[Any, Any, str]:
    return anote(label)


def returns_an_awaitable(label: str) -> Later:
    return Later(label)


@plain
async def wrapped(label: str) -> str:
    return await anote(label)


async def returns_what_is_still_to_be_awaited(label: str) -> Any:
    return plain(anote)(label)


async def returns_a_task(label: str) -> Any:
    return asyncio.create_task(anote(label))


def returns_a_future(label: str) -> Future[str]:
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(lambda: label)
    finally:
        pool.shutdown(wait=False)


def yields(label: str) -> Iterator[str]:
    yield note(label)


async def ayields(label: str) -> AsyncIterator[str]:
    yield await anote(label)


def returns_a_map(label: str) -> Any:
    return map(note, [label])


def returns_a_function(label: str) -> Any:
    return functools.partial(note, label)


async def returns_a_generator(label: str) -> Any:
    return yields(label)


def then_fails(label: str) -> Any:
    async def fails() -> None:
        await anote(label)
        raise LookupError("after its await")

    return fails()


RUN: dict[str, Callable[..., Any]] = {
    "wrapped": wrapped,
    "coroutine": returns_a_coroutine,
    "awaitable": returns_an_awaitable,
    "twice": returns_what_is_still_to_be_awaited,
    "task": returns_a_task,
    "partial": functools.partial(plain(anote)),
    "method": Awaiting().method,
    "object": Awaiting(),
    "class": Counting(anote),
    "run_once": guarded(run_once, "wrapped:{}".format, None)(wrapped),
    "run_exclusive": guarded(run_exclusive, "wrapped:{}".format, 30)(wrapped),
    "claim_once": guarded(claim_once, "wrapped:{}".format)(wrapped),
    "claim_period": guarded(claim_period, "wrapped:{}".format, 3600)(wrapped),
    "arun_once": guarded(run_once, "awrapped:{}".format, None)(returns_what_is_still_to_be_awaited),
    "arun_exclusive": guarded(run_exclusive, "awrapped:{}".format, 30)(returns_what_is_still_to_be_awaited),
    "aclaim_once": guarded(claim_once, "awrapped:{}".format)(returns_what_is_still_to_be_awaited),
}  # fmt: skip

#: A `GuardResult` is no result that can be stored.
GUARDED = {kind for kind in RUN if kind.removeprefix("a").startswith(("run_", "claim_"))}

UNRUN: dict[str, Callable[..., Any]] = {
    "generator": plain(yields),
    "async generator": plain(ayields),
    "map": returns_a_map,
    "partial": returns_a_function,
    "coroutine with a generator": returns_a_generator,
    "run_once": guarded(run_once, "unrun:{}".format, None)(plain(yields)),
    "run_exclusive": guarded(run_exclusive, "unrun:{}".format, 30)(plain(ayields)),
    "claim_once": guarded(claim_once, "unrun:{}".format)(plain(yields)),
    "arun_once": guarded(run_once, "aunrun:{}".format, None)(returns_a_generator),
}

runs = {kind: job(name=f"wrapped.runs.{kind}", max_attempts=1)(function) for kind, function in RUN.items()}
isolated = {
    kind: job(name=f"wrapped.isolated.{kind}", max_attempts=1, isolation="process")(function)
    for kind, function in RUN.items()
    if kind in ("wrapped", "task", "object")
}
unrun = {kind: job(name=f"wrapped.unrun.{kind}", max_attempts=1)(function) for kind, function in UNRUN.items()}
isolated_unrun = job(name="wrapped.isolated_unrun", max_attempts=1, isolation="process")(plain(yields))
future = job(name="wrapped.future", max_attempts=1)(returns_a_future)
fails_later = job(name="wrapped.fails_later", max_attempts=1)(then_fails)


def _writes_first(function: Callable[..., Any], label: str) -> Any:
    note(f"{label} at first")
    return function(label)


atomic = {
    kind: job(name=f"wrapped.atomic.{kind}", max_attempts=1, atomic=True)(functools.partial(_writes_first, function))
    for kind, function in (("coroutine", returns_a_coroutine), ("generator", plain(yields)), ("awaitable", Later))
}


@job(timeout=1, max_attempts=1)
def waits_for_ever() -> Any:
    return plain(_waits)()


@job(max_attempts=1)
def waits_to_be_cancelled() -> Any:
    return plain(_waits)()


async def _waits() -> None:
    await anote("waits")
    await asyncio.sleep(3600)
