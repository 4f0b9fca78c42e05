from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_reliable_jobs.schedules import Every, ScheduleError, as_timetable, next_fires
from django_reliable_jobs.schedules.timetable import EPOCH
from django_reliable_jobs.values.durations import MAX_SECONDS
from tests.support.schedules.oracle import utc, utcs

PERIODS = st.integers(1, int(MAX_SECONDS))
MOMENTS = st.datetimes(
    min_value=utc("1900-01-01").replace(tzinfo=None), max_value=utc("2200-01-01").replace(tzinfo=None)
)


@given(PERIODS, MOMENTS.map(lambda moment: moment.replace(tzinfo=EPOCH.tzinfo)))
def test_fire_times_are_the_multiples_of_the_period_since_1970(seconds: int, moment: Any) -> None:
    every, period = Every(seconds), timedelta(seconds=seconds)
    following, latest = every.next_after(moment), every.latest_at(moment)
    assert following is not None
    assert latest is not None
    assert latest <= moment < following
    assert following - latest == period
    assert (latest - EPOCH) % period == timedelta(0)
    assert every.matches(latest)
    assert every.matches(moment) == (latest == moment)
    until = moment + 5 * period
    assert list(every.between(moment, until)) == [following + index * period for index in range(5)]
    assert every.newest(moment, until, 2) == list(every.between(moment, until))[-2:]
    assert every.count(moment, until) == 5


def test_all_pods_agree_whenever_they_start() -> None:
    starts = [utc("2026-08-01T00:00:01") + timedelta(seconds=7 * index) for index in range(40)]
    assert {Every(300).next_after(start) for start in starts} == {utc("2026-08-01T00:05")}


def test_a_period_knows_no_time_zone() -> None:
    across_the_change = [next_fires("@every 1d", zone, utc("2026-03-07"), 3) for zone in ("UTC", "America/New_York")]
    assert across_the_change == [utcs("2026-03-08", "2026-03-09", "2026-03-10")] * 2


@pytest.mark.parametrize(
    ("period", "seconds"),
    [
        (1, 1),
        (300, 300),
        (60.0, 60),
        (timedelta(minutes=5), 300),
        (timedelta(days=7), 604_800),
        (MAX_SECONDS, 315_360_000),
    ],
)
def test_a_period_is_whole_seconds_or_a_timedelta(period: Any, seconds: int) -> None:
    assert Every(period).seconds == seconds
    assert as_timetable(Every(period).text, "UTC") == Every(period)


@pytest.mark.parametrize(
    ("period", "words"),
    [
        (0, "from 1 to 315360000 seconds, not 0"),
        (-5, "not -5"),
        (0.5, "not 0.5"),
        (1.5, "must be whole seconds, not 1.5"),
        (timedelta(0), "not 0:00:00"),
        (timedelta(milliseconds=500), "not 0:00:00.5"),
        (timedelta(seconds=90, microseconds=1), "must be whole seconds, not 0:01:30.000001"),
        (timedelta.max, "from 1 to"),
        (MAX_SECONDS + 1, "from 1 to"),
        (math.nan, "not nan"),
        (math.inf, "not inf"),
        pytest.param(10**5_000, "not an integer of that size", id="huge"),
    ],
)
def test_a_period_that_makes_no_sense_is_refused(period: Any, words: str) -> None:
    with pytest.raises(ScheduleError, match="a period must be") as caught:
        Every(period)
    assert words in str(caught.value)
    assert caught.value.field == "period"


@pytest.mark.parametrize("period", ["60", None, True])
def test_what_is_no_duration_is_a_type_error(period: Any) -> None:
    with pytest.raises(TypeError, match="a period must be seconds"):
        Every(period)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("@every 90", 90),
        ("@every 90s", 90),
        ("@EVERY 5M", 300),
        ("  @every   1h30m ", 5400),
        ("@every 1d2h3m4s", 93_784),
        ("@every 2d", 172_800),
    ],
)
def test_a_period_can_be_written(text: str, seconds: int) -> None:
    assert as_timetable(text, "Asia/Tokyo") == Every(seconds)
    assert Every.parse(text).text == str(Every(seconds)) == f"@every {seconds}"


@pytest.mark.parametrize(
    "text",
    ["@every", "@every ", "@every five", "@every 5x", "@every 1.5", "@every -5", "@every 0", "@every 5m1h", "@everyday",
     "@every 1 h", "@every 99999999999", "@every ٣"],
)  # fmt: skip
def test_a_period_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError, match="period"):
        as_timetable(text, "UTC")
