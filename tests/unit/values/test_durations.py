from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_reliable_jobs.values.durations import MAX_SECONDS, capped_seconds, optional_seconds, seconds

#: The machine may be busy: time is not what these tests are about.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

HUGE = pytest.param(10**5000, id="5000 digits")
HUGE_BELOW_ZERO = pytest.param(-(10**5000), id="5000 digits below zero")
NOT_DURATIONS = [True, False, "30", b"30", None, Decimal(30), [30], datetime(2026, 1, 1), 3j]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0.0), (30, 30.0), (1.5, 1.5), (timedelta(minutes=2), 120.0), (timedelta(microseconds=1), 1e-6)],
)
def test_numbers_and_timedeltas_become_seconds(value: float | timedelta, expected: float) -> None:
    result = seconds(value, "timeout")
    assert (result, type(result)) == (expected, float)


def test_negative_zero_becomes_zero() -> None:
    assert math.copysign(1, seconds(-0.0, "delay")) == 1


@pytest.mark.parametrize("value", NOT_DURATIONS)
@pytest.mark.parametrize("function", [seconds, capped_seconds])
def test_what_is_no_duration_is_a_type_error_that_names_the_parameter(function: Any, value: Any) -> None:
    with pytest.raises(TypeError, match=r"^timeout must be seconds \(a number\) or a timedelta, not "):
        function(value, "timeout")


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -1, -1e-9, timedelta(days=-1), HUGE, HUGE_BELOW_ZERO, timedelta.max, 1e300]
)
def test_what_no_schedule_can_hold_is_a_value_error_that_names_the_parameter(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^expires must be "):
        seconds(value, "expires")


def test_the_limits_are_part_of_the_message() -> None:
    with pytest.raises(ValueError, match=r"^LEASE must be at least 1 second, not 0\.5$"):
        seconds(0.5, "LEASE", minimum=1)
    with pytest.raises(ValueError, match=r"^GRACE must be at most 60 seconds, not 0:02:00$"):
        seconds(timedelta(minutes=2), "GRACE", maximum=60)
    assert seconds(60, "GRACE", minimum=60, maximum=60) == 60


def test_none_is_kept_where_a_duration_is_optional() -> None:
    assert optional_seconds(None, "timeout") is None
    assert optional_seconds(5, "timeout") == 5
    with pytest.raises(ValueError, match="timeout"):
        optional_seconds(-5, "timeout")


@pytest.mark.parametrize("value", [10**12, HUGE, 1e308, math.inf, timedelta.max])
def test_a_computed_delay_that_is_far_too_long_is_capped(value: Any) -> None:
    assert capped_seconds(value, "delay") == MAX_SECONDS


@pytest.mark.parametrize("value", [math.nan, -5, -math.inf, HUGE_BELOW_ZERO, timedelta(days=-1)])
def test_a_computed_delay_that_is_negative_or_nan_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^delay must be zero or more seconds, not "):
        capped_seconds(value, "delay")


@unhurried
@given(st.one_of(st.integers(), st.floats(), st.timedeltas()))
def test_every_duration_that_is_taken_gives_a_valid_date(value: float | timedelta) -> None:
    for function in (seconds, capped_seconds):
        try:
            result = function(value, "delay")
        except ValueError:
            continue
        assert 0 <= result <= MAX_SECONDS
        assert datetime(2400, 1, 1) + timedelta(seconds=result) < datetime(2500, 1, 1)
