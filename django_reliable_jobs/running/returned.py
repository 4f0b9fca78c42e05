"""What a function gives back may be its work still to be done: an awaitable, a generator, a call that nobody makes.

A decorator that does not know of coroutines makes a plain function of one, and so does a `def` that returns one. Its work
begins only when what it returned is awaited; taken for a result, it would be recorded as done and never run.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from functools import partial
from inspect import isawaitable
from itertools import starmap
from types import FunctionType, MethodType
from typing import Any

from asgiref.sync import async_to_sync

from django_reliable_jobs.errors import NotRun

#: Nothing of these is left to be run; looked up first, since this is on the way of every job.
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, list, dict, tuple, set})
#: What runs nothing until somebody iterates, or calls it. A `map` is here, a list's iterator is not: it is only data.
_UNRUN = (Generator, AsyncIterator, map, filter, starmap, FunctionType, MethodType, partial)


def has_to_be_awaited(value: Any) -> bool:
    """Whether `value` is an awaitable, or a future that another thread will set."""
    return type(value) not in _PLAIN and (isawaitable(value) or isinstance(value, concurrent.futures.Future))


async def to_the_end(value: Any) -> Any:
    """Await `value`, and what that brings, until it is a result."""
    while has_to_be_awaited(value):
        value = await (asyncio.wrap_future(value) if isinstance(value, concurrent.futures.Future) else value)
    return value


def awaited_here(value: Any, through: Callable[[Any], Coroutine[Any, Any, Any]] = to_the_end) -> Any:
    """For synchronous code: `value`, or what it comes to if it has to be awaited, which the coroutine function `through`
    does. Raises `NotRun` in an event loop."""
    if not has_to_be_awaited(value):
        return value
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return async_to_sync(through)(value)
    discard(value)
    raise NotRun(
        f"it returned {_described(value)}, which cannot be awaited in synchronous code that was called from an event"
        " loop; use the asynchronous form (`await ...acall(...)`, `await arun_exclusive(...)`)."
    )


def refuse_unrun(value: Any) -> None:
    """Raise `NotRun` if `value` is work that nobody will do."""
    if type(value) in _PLAIN:
        return
    if isinstance(value, _UNRUN):
        discard(value)
        raise NotRun(
            f"it returned {_described(value)} that nobody would run, so its work has not been done. A decorator that"
            " does not know of generators or was applied without its parentheses does that, and so does a `yield`."
        )


def refuse_awaitable(value: Any, why: str) -> None:
    """Raise `NotRun` if `value` has to be awaited, where that cannot be done."""
    if has_to_be_awaited(value):
        discard(value)
        raise NotRun(f"it returned {_described(value)}: {why}")


def discard(value: Any) -> None:
    """End what will not be run: without a warning that it was never awaited, and with its `finally` blocks run."""
    close = getattr(value, "close", None) or getattr(value, "cancel", None)
    if callable(close) and isinstance(value, (Coroutine, Generator, concurrent.futures.Future)):
        close()


def _described(value: Any) -> str:
    kind = type(value).__name__.replace("_", " ")
    name = getattr(value, "__qualname__", None)
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return f"{article} {kind} ({name})" if isinstance(name, str) else f"{article} {kind}"
