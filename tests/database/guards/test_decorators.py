"""`guarded`: a function each of whose calls goes through a guard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from django_reliable_jobs.guards import (
    GuardResult,
    claim_once,
    claim_period,
    claim_rows,
    current_lease,
    guarded,
    run_exclusive,
    run_once,
)
from django_reliable_jobs.models import GuardClaim
from tests.support.guards.fixtures import run

LONG = 10 * 365 * 86_400
#: What follows the key.
LIMITS: dict[Callable[..., Any], tuple[float, ...]] = {
    claim_period: (LONG,), claim_once: (), run_once: (LONG,), run_exclusive: (30,),
}  # fmt: skip
#: Of these the second call is refused; an exclusive run is over by then.
ONCE = (claim_period, claim_once, run_once)


@pytest.mark.parametrize("verb", LIMITS, ids=lambda verb: verb.__name__)
def test_the_first_call_runs_and_its_value_comes_back(store: str, verb: Callable[..., Any]) -> None:
    calls: list[int] = []

    @guarded(verb, "report", *LIMITS[verb])
    def report(a: int, *, b: int) -> int:
        """Its text."""
        calls.append(a)
        return a + b

    assert report(1, b=2) == GuardResult(True, 3)
    second = report(5, b=5)
    assert second == (GuardResult(False) if verb in ONCE else GuardResult(True, 10))
    assert bool(second) is (verb not in ONCE)
    assert calls == ([1] if verb in ONCE else [1, 5])
    assert (report.__name__, report.__doc__) == ("report", "Its text.")


@pytest.mark.parametrize("verb", LIMITS, ids=lambda verb: verb.__name__)
def test_a_coroutine_function_stays_one(store: str, verb: Callable[..., Any]) -> None:
    @guarded(verb, "report", *LIMITS[verb])
    async def report(a: int, *, b: int) -> int:
        await asyncio.sleep(0)
        assert (current_lease() is not None) is (verb in (run_once, run_exclusive))
        return a + b

    async def main() -> list[GuardResult[int]]:
        assert asyncio.iscoroutinefunction(report)
        return [await report(1, b=2), await report(5, b=5)]

    second = GuardResult(False) if verb in ONCE else GuardResult(True, 10)
    assert run(main()) == [GuardResult(True, 3), second]


def test_the_key_may_be_made_of_the_arguments(store: str) -> None:
    @guarded(claim_once, lambda order, *, part=0: f"order:{order}:{part}")
    def settle(order: int, *, part: int = 0) -> str:
        return f"settled {order}/{part}"

    assert settle(1).value == "settled 1/0"
    assert settle(2).value == "settled 2/0"
    assert settle(1, part=1).value == "settled 1/1"
    assert not settle(1)
    assert not settle(1, part=1)


def test_arguments_that_are_called_as_the_verbs_own_reach_the_function(store: str) -> None:
    @guarded(run_exclusive, "import", 30)
    def plain(key: str, ttl: int, fn: int, using: str) -> list[object]:
        return [key, ttl, fn, using]

    @guarded(run_exclusive, "import", 30)
    async def coroutine(key: str, ttl: int, fn: int, using: str) -> list[object]:
        return [key, ttl, fn, using]

    given = {"key": "k", "ttl": 1, "fn": 2, "using": "nowhere"}
    assert plain(**given).value == ["k", 1, 2, "nowhere"]  # type: ignore[arg-type]
    assert run(coroutine(**given)).value == ["k", 1, 2, "nowhere"]  # type: ignore[arg-type]


def test_an_exception_is_the_callers_and_frees_a_run_but_not_a_claim(store: str) -> None:
    fails = [True]

    def report() -> str:
        if fails:
            raise ValueError("no")
        return "yes"

    runs, claims = guarded(run_once, "report", LONG)(report), guarded(claim_once, "report")(report)
    for call in (runs, claims):
        with pytest.raises(ValueError, match="no"):
            call()
    fails.clear()
    assert runs() == GuardResult(True, "yes")
    assert claims() == GuardResult(False), "it was claimed, once and for all"


def test_a_claim_joins_the_callers_transaction(database: None) -> None:
    report = guarded(claim_once, "report")(lambda: 1)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert report()
        1 / 0  # noqa: B018
    assert report()
    assert GuardClaim.objects.count() == 1


@pytest.mark.parametrize("verb", [claim_rows, print, None, "claim_once"])
def test_what_is_no_guard_is_refused_where_it_is_written(verb: Any) -> None:
    with pytest.raises(TypeError, match=r"guarded\(\) takes claim_period"):
        guarded(verb, "report")
