from __future__ import annotations

import functools
import logging
import math
import sys
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_reliable_jobs.values.backoff import Backoff, BackoffSpec, as_backoff, requested_delay, retry_delay
from django_reliable_jobs.values.durations import MAX_SECONDS

#: The machine may be busy: time is not what these tests are about.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

ATTEMPTS = [*range(1, 61), *range(1_020, 1_030), 10_000, 10**6, 10**9, 10**400]


def longest() -> float:
    """Stands in for `random.random`: no reduction."""
    return 1.0


def test_the_delay_grows_by_the_factor_up_to_the_cap() -> None:
    backoff = Backoff(base=10, factor=2, cap=100)
    assert [backoff.delay(attempt) for attempt in range(1, 7)] == [10, 20, 40, 80, 100, 100]


@pytest.mark.parametrize("base", [1, 2, 5, 1e-6, 0.3])
@pytest.mark.parametrize("factor", [1, 1.0000001, 1.5, 2, 5, 1e308])
def test_no_attempt_number_overflows(base: float, factor: float) -> None:
    backoff = Backoff(base=base, factor=factor, cap=MAX_SECONDS)
    delays = [backoff.delay(attempt) for attempt in ATTEMPTS]
    assert all(math.isfinite(delay) and base <= delay <= MAX_SECONDS for delay in delays)
    assert delays == sorted(delays)
    assert delays[-1] == (base if factor == 1 else MAX_SECONDS)


@unhurried
@given(
    base=st.floats(0, 1e6),
    factor=st.floats(1, 1e6),
    more=st.floats(0, MAX_SECONDS - 1e6),
    attempt=st.integers(1, 10**7),
)
def test_delays_are_finite_and_never_fall(base: float, factor: float, more: float, attempt: int) -> None:
    backoff = Backoff(base, factor, base + more)
    assert base <= backoff.delay(attempt) <= backoff.delay(attempt + 1) <= backoff.cap


@unhurried
@given(base=st.integers(1, 1000), factor=st.integers(1, 9), cap=st.integers(1000, 10**6), attempt=st.integers(1, 60))
def test_the_delay_is_the_smaller_of_the_cap_and_the_exact_power(
    base: int, factor: int, cap: int, attempt: int
) -> None:
    exact = min(Fraction(cap), Fraction(base) * Fraction(factor) ** (attempt - 1))
    assert Backoff(base, factor, cap).delay(attempt) == pytest.approx(float(exact), rel=1e-12)


def test_a_base_of_zero_retries_at_once() -> None:
    assert {Backoff(base=0).delay(attempt) for attempt in ATTEMPTS} == {0.0}
    assert Backoff(base=0, cap=0).delay(7) == 0


def test_a_base_below_a_microsecond_does_not_overflow() -> None:
    assert Backoff(base=sys.float_info.min, factor=2, cap=3600).delay(10**6) < 1e-6


def test_attempt_numbers_below_one_count_as_the_first() -> None:
    assert Backoff().delay(0) == Backoff().delay(-3) == 10


def test_durations_may_be_timedeltas_and_are_kept_as_seconds() -> None:
    assert Backoff(timedelta(seconds=10), 2, timedelta(hours=1)) == Backoff()
    assert repr(Backoff()) == "Backoff(base=10.0, factor=2.0, cap=3600.0)"
    assert hash(Backoff()) == hash(Backoff(10, 2, 3600))


@pytest.mark.parametrize(
    ("arguments", "error", "names"),
    [
        ({"base": -1}, ValueError, "base"),
        ({"base": math.nan}, ValueError, "base"),
        ({"base": True}, TypeError, "base"),
        ({"cap": "1h"}, TypeError, "cap"),
        ({"cap": math.inf}, ValueError, "cap"),
        ({"cap": 5}, ValueError, r"cap \(5 seconds\) must not be less than base \(10 seconds\)"),
        ({"factor": 0.5}, ValueError, "factor"),
        ({"factor": 0}, ValueError, "factor"),
        ({"factor": -2}, ValueError, "factor"),
        ({"factor": math.nan}, ValueError, "factor"),
        ({"factor": math.inf}, ValueError, "factor"),
        ({"factor": 10**400}, ValueError, "factor"),
        ({"factor": "2"}, TypeError, "factor"),
        ({"factor": True}, TypeError, "factor"),
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused_by_name(arguments: Any, error: type[Exception], names: str) -> None:
    with pytest.raises(error, match=names):
        Backoff(**arguments)


def test_the_last_element_of_a_list_repeats() -> None:
    spec = as_backoff([0, timedelta(minutes=5), 600])
    assert [retry_delay(spec, attempt, longest) for attempt in (0, 1, 2, 3, 4, 10**6)] == [0, 0, 300, 600, 600, 600]


def test_a_function_gets_the_attempt_number() -> None:
    def linear(attempt: int) -> timedelta:
        return timedelta(minutes=attempt)

    assert [retry_delay(as_backoff(linear), attempt, longest) for attempt in (1, 2, 3)] == [60, 120, 180]


@pytest.mark.parametrize("spec", [Backoff(base=10), [10], lambda attempt: 10])
def test_jitter_takes_away_at_most_half(spec: BackoffSpec) -> None:
    checked = as_backoff(spec)
    assert retry_delay(checked, 1, lambda: 0.0) == 5
    assert retry_delay(checked, 1, lambda: 0.5) == 7.5
    assert retry_delay(checked, 1, lambda: 0.999999) == pytest.approx(10, rel=1e-5)


def _raises(error: type[BaseException]) -> Any:
    def broken(attempt: int) -> float:
        raise error("no delay today")

    return broken


@pytest.mark.parametrize(
    "function",
    [
        lambda attempt: -5,
        lambda attempt: math.nan,
        lambda attempt: -math.inf,
        lambda attempt: None,
        lambda attempt: "10",
        lambda attempt: True,
        lambda attempt: timedelta(days=-1),
        _raises(ZeroDivisionError),
        _raises(RecursionError),
        _raises(SystemExit),
    ],
)
def test_a_function_that_fails_is_logged_and_the_default_backoff_used(
    function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "django_reliable_jobs.values.backoff"):
        assert retry_delay(as_backoff(function), 3, longest) == Backoff().delay(3)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert function.__qualname__ in record.getMessage()


@pytest.mark.parametrize("result", [10**12, 10**400, math.inf, timedelta.max])
def test_a_function_whose_delay_is_huge_is_capped(result: Any) -> None:
    assert retry_delay(as_backoff(lambda attempt: result), 1, longest) == MAX_SECONDS


def test_a_power_that_overflows_in_the_own_function_ends_at_the_default() -> None:
    assert retry_delay(as_backoff(lambda attempt: 5.0**attempt), 10**6, longest) == Backoff().cap


async def _coroutine(attempt: int) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        (None, TypeError, "not NoneType"),
        (30, TypeError, r"pass a list: \[30\]"),
        (timedelta(minutes=1), TypeError, "pass a list"),
        ("10", TypeError, "not str"),
        ({"base": 10}, TypeError, "not dict"),
        ({1, 2}, TypeError, "not set"),
        ([], ValueError, "empty list"),
        ([1, -2], ValueError, r"backoff\[1\] must be zero or more seconds"),
        ([1, None], TypeError, r"backoff\[1\]"),
        ([math.nan], ValueError, r"backoff\[0\]"),
        (Backoff, TypeError, "not the class Backoff"),
        (lambda: 1, TypeError, "one argument"),
        (lambda a, b: 1, TypeError, "one argument"),
        (_coroutine, TypeError, "coroutine"),
    ],
)
def test_a_spec_that_could_only_fail_later_is_refused_at_once(spec: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        as_backoff(spec)


@pytest.mark.parametrize("function", [functools.partial(max, 5), lambda *args: 1, lambda a, b=2: 1, abs])
def test_what_can_be_called_with_one_argument_is_taken(function: Any) -> None:
    assert as_backoff(function) is function


def test_a_requested_delay_is_checked_where_it_is_asked_for() -> None:
    assert requested_delay(timedelta(minutes=1)) == 60
    assert requested_delay(0) == 0
    assert requested_delay(10**12) == requested_delay(timedelta.max) == MAX_SECONDS
    for value in (-5, math.nan, timedelta(days=-1)):
        with pytest.raises(ValueError, match=r"^delay must be zero or more seconds"):
            requested_delay(value)
