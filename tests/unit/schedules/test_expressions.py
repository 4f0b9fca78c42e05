"""What is read, and what is refused with which words."""

from __future__ import annotations

import contextlib
import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_reliable_jobs.errors import ReliableJobsError
from django_reliable_jobs.schedules import CronExpression, Every, ScheduleError, as_timetable, next_fires
from django_reliable_jobs.schedules.expression import parse_expression
from tests.support.schedules.oracle import utc

ALL_DAYS = set(range(7))


def read(expression: str) -> CronExpression:
    return CronExpression.parse(expression, "UTC")


@pytest.mark.parametrize(
    ("minute", "minutes"),
    [
        ("*", set(range(60))),
        ("*/15", {0, 15, 30, 45}),
        ("*/60", {0}),
        ("5", {5}),
        ("05", {5}),
        ("1,3,2,3", {1, 2, 3}),
        ("10-12", {10, 11, 12}),
        ("10-20/5", {10, 15, 20}),
        ("10/15", {10, 25, 40, 55}),
        ("59/15", {59}),  # the whole cycle in some releases of croniter
        ("5-5", {5}),  # likewise
        ("5-5/2", {5}),
        ("5-6/2", {5}),
        ("0-59", set(range(60))),
        ("0-59/60", {0}),
        ("0,*/30", {0, 30}),
        ("58-59,0-1", {58, 59, 0, 1}),
    ],
)
def test_the_items_of_a_field(minute: str, minutes: set[int]) -> None:
    assert set(parse_expression(f"{minute} * * * *").pattern.minutes) == minutes


@pytest.mark.parametrize(
    ("weekday", "weekdays"),
    [
        ("0", {0}),
        ("7", {0}),
        ("7-7", {0}),
        ("sun", {0}),
        ("SUN-SUN", {0}),
        ("Mon-Fri", {1, 2, 3, 4, 5}),
        ("0-7", ALL_DAYS),
        ("1-7", ALL_DAYS),
        ("1-7/2", {1, 3, 5, 0}),
        ("0-6", ALL_DAYS),
        ("SUN-SAT", ALL_DAYS),
        ("6-5", ALL_DAYS),
        ("5-7", {5, 6, 0}),
        ("5-0", {5, 6, 0}),
        ("7-2", {0, 1, 2}),
        ("SAT-SUN", {6, 0}),
        ("FRI-MON", {5, 6, 0, 1}),
        ("FRI-MON/2", {5, 0}),
        ("FRI-TUE/3", {5, 1}),
        ("*/2", {0, 2, 4, 6}),
        ("1/2", {1, 3, 5}),  # up to Saturday
        ("7/2", {0, 2, 4, 6}),
        ("6,7", {6, 0}),
    ],
)
def test_weekdays_may_wrap_around_and_sunday_has_two_numbers(weekday: str, weekdays: set[int]) -> None:
    assert parse_expression(f"0 0 * * {weekday}").pattern.weekdays == weekdays


@pytest.mark.parametrize(
    ("day", "days", "last_day"),
    [("*", set(range(1, 32)), False), ("L", set(), True), ("l,15", {15}, True), ("31,L", {31}, True)],
)
def test_days_of_the_month(day: str, days: set[int], last_day: bool) -> None:
    pattern = parse_expression(f"0 0 {day} * *").pattern
    assert set(pattern.days) == days
    assert pattern.last_day is last_day


def test_months_have_names() -> None:
    assert parse_expression("0 0 1 jan,MAR-May,9/2 *").pattern.months == {1, 3, 4, 5, 9, 11}


@pytest.mark.parametrize(
    ("expression", "fixed"),
    [
        ("30 2 * * *", True),
        ("0-59 0-23 * * *", True),
        ("0,30 2,3 * * *", True),
        ("5/10 2/4 * * *", True),
        ("* 2 * * *", False),
        ("*/5 2 * * *", False),
        ("*,5 2 * * *", False),
        ("5,* 2 * * *", True),  # only the first character counts
        ("30 * * * *", False),
        ("30 */2 * * *", False),
        ("@hourly", False),
        ("@daily", True),
    ],
)
def test_an_expression_is_fixed_if_neither_minute_nor_hour_starts_with_a_star(expression: str, fixed: bool) -> None:
    assert parse_expression(expression).fixed is fixed


@pytest.mark.parametrize(
    ("days", "either"),
    [("1 * 1", True), ("1-31 * 0-6", True), ("*/2 * 1", False), ("1 * */2", False), ("* * 1", False), ("1 * *", False)],
)
def test_a_day_field_that_starts_with_a_star_makes_both_necessary(days: str, either: bool) -> None:
    assert parse_expression(f"0 0 {days}").pattern.either_day is either


@pytest.mark.parametrize(
    ("expression", "field", "words"),
    [
        ("61 * * * *", "minute", r"minute: '61' is not in 0-59"),
        ("60 * * * *", "minute", r"'60' is not in 0-59"),
        ("0 24 * * *", "hour", r"hour: '24' is not in 0-23"),
        ("0 0 0 * *", "day-of-month", r"'0' is not in 1-31"),
        ("0 0 32 * *", "day-of-month", r"'32' is not in 1-31"),
        ("0 0 1-32 * *", "day-of-month", r"'32' is not in 1-31"),
        ("0 0 1 0 *", "month", r"'0' is not in 1-12"),
        ("0 0 1 13 *", "month", r"'13' is not in 1-12"),
        ("0 0 * * 8", "day-of-week", r"'8' is not in 0-7"),
        (f"{'9' * 400} * * * *", "minute", r"'99999999999999999\.\.\.' is not in 0-59"),
        ("*/0 * * * *", "minute", r"the step '0' is not in 1-60"),
        ("*/90 * * * *", "minute", r"the step '90' is not in 1-60; a step starts again with each hour"),
        ("0 */25 * * *", "hour", r"a step starts again with each day"),
        ("5-2 * * * *", "minute", r"the range 5-2 runs backwards.*write 5-59,0-2"),
        ("0 22-2 * * *", "hour", r"write 22-23,0-2"),
        ("0 0 1 nov-feb *", "month", r"write 11-12,1-2"),
        ("-5 * * * *", "minute", r"'-5' cannot be read"),
        ("5- * * * *", "minute", r"'5-' cannot be read"),
        ("1,,2 * * * *", "minute", r"an item of the list is empty"),
        (", * * * *", "minute", r"an item of the list is empty"),
        ("** * * * *", "minute", r"'\*\*' cannot be read"),
        ("*/5/2 * * * *", "minute", r"cannot be read"),
        ("1.5 * * * *", "minute", r"'1\.5' cannot be read"),
        ("mon * * * *", "minute", r"'mon' cannot be read; it takes \*, numbers, ranges and steps"),
        ("0 0 * * monday", "day-of-week", r"'monday' is not known, write MON"),
        ("0 0 * january *", "month", r"'january' is not known, write JAN"),
        ("0 0 * * jan", "day-of-week", r"'jan' cannot be read; it takes \*, numbers or SUN, MON"),
        ("0 0 L-3 * *", "day-of-month", r"L cannot be part of a range"),
        ("0 0 28-L * *", "day-of-month", r"L cannot be part of a range"),
        ("0 0 LW * *", "day-of-month", r"'lw' is not supported"),
        ("0 0 15W * *", "day-of-month", r"'15w' is not supported"),
        ("0 0 * * 5L", "day-of-week", r"'5l' is not supported"),
        ("0 0 * * L", "day-of-week", r"L \(the last day of the month\) belongs into the day-of-month field"),
        ("L 0 * * *", "minute", r"belongs into the day-of-month field"),
        ("0 0 * * 5#2", "day-of-week", r"'5#2' is not supported"),
        ("0 0 ? * 1", "day-of-month", r"\? is not used here, write \*"),
        ("H * * * *", "minute", r"by hash or at random.*jitter"),
        ("R(0-10) * * * *", "minute", r"by hash or at random"),
        ("h/5 * * * *", "minute", r"by hash or at random"),
        ("", "expression", r"it has no field, it needs five: minute hour day-of-month month day-of-week"),
        ("*", "expression", r"it has one field"),
        ("* * * *", "expression", r"it has 4 fields"),
        ("*/30 * * * * *", "expression", r"it has 6 fields.*seconds at the start.*use a period"),
        ("0 0 12 * * *", "expression", r"it has 6 fields"),
        ("0 0 12 * * * 2026", "expression", r"it has 7 fields"),
        ("* * * * * * * *", "expression", r"it has 8 fields"),
        ("@reboot", "expression", r"@reboot has no meaning"),
        ("@fortnightly", "expression", r"unknown nickname; there are @hourly"),
        ("@daily *", "expression", r"unknown nickname"),
        ("\uff11 * * * *", "expression", r"only ASCII"),
        ("* * * *\u00a0*", "expression", r"only ASCII"),
        ("0," * 300 + "0 * * * *", "expression", r"more than 500 characters"),
    ],
)
def test_what_is_wrong_is_said_and_the_field_named(expression: str, field: str, words: str) -> None:
    with pytest.raises(ScheduleError, match=f"(?s){words}") as caught:
        as_timetable(expression, "UTC")
    assert caught.value.field == field
    assert len(str(caught.value)) < 700


def test_an_error_is_a_value_error_of_the_package_and_survives_pickling() -> None:
    with pytest.raises(ScheduleError) as caught:
        read("61 * * * *")
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, ReliableJobsError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.field) == (str(caught.value), "minute")


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        ("America/New_Yrok", "unknown time zone 'America/New_Yrok'; did you mean America/New_York?"),
        ("america/new york", "did you mean America/New_York?"),
        ("Europe", "unknown time zone 'Europe'"),
        ("", "unknown time zone ''"),
        ("../../etc/passwd", "unknown time zone '../../etc/passwd'"),
        ("/etc/localtime", "unknown time zone"),
        ("right/Europe/Paris", "unknown time zone"),
        ("posixrules", "unknown time zone"),
        ("Europe/Paris\n", "unknown time zone"),
        ("a\0b", "unknown time zone"),
        ("\ud800", "unknown time zone"),
        ("x" * 10_000, "unknown time zone"),
    ],
)
@pytest.mark.parametrize("expression", ["* * * * *", "@every 5m"])
def test_a_zone_that_is_none_is_named(expression: str, zone: str, words: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        as_timetable(expression, zone)
    assert words in str(caught.value)
    assert caught.value.field == "timezone"
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("zone", [None, 1, timezone(timedelta(hours=2)), b"UTC"])
def test_a_zone_without_a_name_is_refused(zone: Any) -> None:
    with pytest.raises(TypeError, match="timezone must be the name of a zone"):
        as_timetable("* * * * *", zone)


def test_zone_objects_stand_for_their_names() -> None:
    assert as_timetable("* * * * *", ZoneInfo("Asia/Tokyo")) == as_timetable("* * * * *", "Asia/Tokyo")
    assert as_timetable("* * * * *", UTC) == as_timetable("* * * * *", "UTC")


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *"])
def test_what_is_no_text_is_a_type_error(expression: Any) -> None:
    with pytest.raises(TypeError, match="must be a string"):
        as_timetable(expression, "UTC")


def test_an_expression_is_a_value() -> None:
    timetable = CronExpression.parse("  30\t2 * *  MON-FRI ", "Europe/Paris")
    assert timetable.text == "30 2 * * MON-FRI"
    assert timetable.timezone == "Europe/Paris"
    assert str(timetable) == "30 2 * * MON-FRI (Europe/Paris)"
    assert timetable == as_timetable(timetable.text, "Europe/Paris") == as_timetable(timetable, "UTC")
    assert timetable != CronExpression.parse("30 2 * * MON-FRI", "Europe/Rome")
    assert len({timetable, copy.deepcopy(timetable), pickle.loads(pickle.dumps(timetable))}) == 1
    with pytest.raises(AttributeError):
        timetable.zone = ZoneInfo("UTC")  # type: ignore[misc]


@pytest.mark.parametrize("question", ["next_after", "latest_at", "matches", "following"])
def test_a_naive_moment_is_refused(question: str) -> None:
    with pytest.raises(ValueError, match="must be an aware datetime, not the naive 2026-08-01T00:00:00"):
        getattr(read("* * * * *"), question)(datetime(2026, 8, 1))
    with pytest.raises(ValueError, match="after must be an aware datetime"):
        next_fires("* * * * *", "UTC", datetime(2026, 8, 1))


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="count must be at least 1"):
        next_fires("* * * * *", "UTC", utc("2026-08-01"), 0)


def test_moments_may_be_in_any_zone_and_between_two_seconds() -> None:
    timetable = read("0 12 * * *")
    noon = utc("2026-08-01T12:00")
    just_before = noon.astimezone(ZoneInfo("Asia/Tokyo")) - timedelta(microseconds=1)
    assert timetable.next_after(just_before) == noon
    assert timetable.next_after(noon) == noon + timedelta(days=1)
    assert timetable.next_after(noon + timedelta(microseconds=1)) == noon + timedelta(days=1)
    assert timetable.latest_at(just_before) == noon - timedelta(days=1)
    assert timetable.latest_at(noon + timedelta(microseconds=1)) == noon
    assert timetable.matches(noon)
    assert not timetable.matches(noon + timedelta(microseconds=1))
    assert not timetable.matches(noon + timedelta(seconds=1))


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York", "Pacific/Apia"])
@pytest.mark.parametrize("expression", ["* * * * *", "0 0 29 2 *", "30 2 * * *", "@every 1h"])
def test_the_calendar_ends_without_an_error(expression: str, zone: str) -> None:
    timetable = as_timetable(expression, zone)
    for moment in (datetime.max, datetime.max - timedelta(days=2), datetime(9999, 12, 1)):
        assert len(next_fires(expression, zone, moment.replace(tzinfo=UTC), 3)) in (0, 3)
        assert timetable.latest_at(moment.replace(tzinfo=UTC)) is not None
    assert timetable.next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert timetable.latest_at(datetime.min.replace(tzinfo=UTC)) is None
    first = timetable.next_after(datetime.min.replace(tzinfo=UTC))
    assert first is not None
    assert first.year < 9


@given(st.text(max_size=40) | st.text("0123456789*/,-@?#LWHR \t", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ScheduleError):
        timetable = as_timetable(text, "Europe/Paris")
        assert timetable.next_after(utc("2026-08-01")) is not None
        assert isinstance(timetable, CronExpression | Every)
        assert as_timetable(timetable.text, "Europe/Paris") == timetable
