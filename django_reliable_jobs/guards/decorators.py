"""Guards as decorators."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from django_reliable_jobs.definitions.job import is_coroutine_function
from django_reliable_jobs.guards.claims import aclaim_once, aclaim_period, claim_once, claim_period
from django_reliable_jobs.guards.runs import GuardResult, arun_exclusive, arun_once, run_exclusive, run_once
from django_reliable_jobs.running.returned import awaited_here, refuse_unrun, to_the_end

P = ParamSpec("P")
T = TypeVar("T")

_ASYNC: dict[Callable[..., Any], Callable[..., Any]] = {
    claim_period: aclaim_period,
    claim_once: aclaim_once,
    run_once: arun_once,
    run_exclusive: arun_exclusive,
}


def guarded(
    verb: Callable[..., Any], key: str | Callable[..., str], *limit: Any, using: str | None = None
) -> Callable[[Callable[P, T]], Callable[P, GuardResult[T]]]:
    """Decorate a function so that each call goes through a guard; it then returns a `GuardResult`.

        @guarded(claim_period, "nightly-report", 86_400)
        def nightly_report() -> None: ...

        @guarded(run_exclusive, lambda order_id: f"order:{order_id}", 30)
        async def settle(order_id: int) -> None: ...

    `verb` is `claim_period`, `claim_once`, `run_once` or `run_exclusive`; what follows the key is what it takes (a period
    or a ttl). The key may be made of the call's arguments. A coroutine function stays one. What the verb raises, the
    call raises: it is in the verb's description.
    """
    if verb not in _ASYNC:
        raise TypeError("guarded() takes claim_period, claim_once, run_once or run_exclusive, and the key after it.")
    runs = verb in (run_once, run_exclusive)

    def decorate(function: Callable[P, T]) -> Callable[P, GuardResult[T]]:
        def key_of(args: Any, kwargs: Any) -> str:
            return key(*args, **kwargs) if callable(key) else key

        if is_coroutine_function(function):
            averb = _ASYNC[verb]

            @wraps(function)
            async def acall(*args: P.args, **kwargs: P.kwargs) -> GuardResult[Any]:
                name = key_of(args, kwargs)
                if runs:
                    return await averb(name, *limit, _with(function, args, kwargs), using=using)  # type: ignore[no-any-return]
                if not await averb(name, *limit, using=using):
                    return GuardResult(False)
                return GuardResult(True, _run_through(await to_the_end(function(*args, **kwargs))))

            return cast(Callable[P, GuardResult[T]], acall)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> GuardResult[T]:
            name = key_of(args, kwargs)
            if runs:
                return verb(name, *limit, lambda: function(*args, **kwargs), using=using)  # type: ignore[no-any-return]
            if not verb(name, *limit, using=using):
                return GuardResult(False)
            return GuardResult(True, _run_through(awaited_here(function(*args, **kwargs))))

        return call

    return decorate


def _run_through(value: T) -> T:
    refuse_unrun(value)
    return value


def _with(function: Callable[..., Any], args: Any, kwargs: Any) -> Callable[[], Any]:
    """The call as a coroutine function without arguments, so that theirs cannot be mistaken for the verb's."""

    async def bound() -> Any:
        return await function(*args, **kwargs)

    return bound
