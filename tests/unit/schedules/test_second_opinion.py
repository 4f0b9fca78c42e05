"""cronsim, which imitates Debian's cron too and shares no code with croniter, as a second opinion.

Where both read an expression, they agree in every zone for two years, but for what stands below with its reason.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError

from django_reliable_jobs.schedules import CronExpression, ScheduleError, next_fires
from tests.support.schedules.oracle import Oracle, change_times, clock, kinds_of_zones, stamp, utc, utcs

START, END = utc("2026-01-01"), utc("2028-01-01")

#: cronsim takes some microseconds a minute: these are sparse.
AROUND_CHANGES = [
    "30 2 * * *",
    "0 0 * * *",
    "45 23 * * *",
    "0 2,3 * * *",
    "15 0-4 * * *",
    "59 1-2 1-9 4,10 *",
    "10/20 2 * * 1-5",
    "0 0 L * *",
    "30 */6 * * *",
    "*/30 1 * * *",
    "0 * * * *",
]
CALENDAR = [
    "30 4 1,15 * 5",
    "0 0 */2 * 1",
    "0 0 15 * */3",
    "0 0 31,L * *",
    "0 0 L 2 *",
    "0 12 * * 5-7",
    "0 12 * * 1-7/2",
    "0 0 * * 0-7/3",
    "5 4 10-20/3 */5 *",
    "0 0 29 2 *",
    "0 0 29 2 */7",
    "59/15 12 1 * *",
    "*,5 3 1 * *",
]


def second_opinion(expression: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    answers = (each.astimezone(UTC) for each in CronSim(expression, after.astimezone(ZoneInfo(zone))))
    return list(takewhile(lambda answer: answer <= until, answers))


def ours(expression: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    return list(CronExpression.parse(expression, zone).between(after, until))


def test_around_every_change_of_every_zone_both_agree() -> None:
    for zone in kinds_of_zones(stamp(START), stamp(END)):
        for moment, _ in change_times(ZoneInfo(zone), stamp(START), stamp(END)):
            change = datetime.fromtimestamp(moment, UTC)
            after, until = change - timedelta(days=1), change + timedelta(days=2)
            for expression in AROUND_CHANGES:
                expected = second_opinion(expression, zone, after, until)
                assert ours(expression, zone, after, until) == expected, (expression, zone, change)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu", "Europe/Paris"])
@pytest.mark.parametrize("expression", CALENDAR)
def test_for_ten_years_both_agree_about_the_calendar(expression: str, zone: str) -> None:
    until = utc("2036-01-01")
    assert ours(expression, zone, START, until) == second_opinion(expression, zone, START, until)


# What one of them does not read.


@pytest.mark.parametrize("expression", ["0 0 * * SAT-SUN", "0 0 * * FRI-MON", "0 0 * * 5-0", "@daily"])
def test_wrapped_weekdays_and_nicknames_are_read_here_only(expression: str) -> None:
    with pytest.raises(CronSimError):
        CronSim(expression, START)
    assert next_fires(expression, "UTC", START)


@pytest.mark.parametrize(
    "expression",
    [
        "*/30 * * * * *",  # six fields, seconds first: refused here, as others have them last
        "0 0 LW * *",  # the last weekday of the month
        "0 0 * * MON#1",  # the first Monday
        "0 0 * * 5L",  # the last Friday
        "*/90 * * * *",  # fires at each full hour, which is not what its author meant
    ],
)
def test_some_extensions_and_a_typing_error_are_read_there_only(expression: str) -> None:
    assert next(CronSim(expression, START))
    with pytest.raises(ScheduleError):
        next_fires(expression, "UTC", START)


# What they read differently.


def test_a_range_of_one_with_a_step_is_one_value_here() -> None:
    # cronsim reads 5-5/2 as 5/2, which is 5 to 59 in steps of 2. A range ends where it says.
    assert ours("5-5/2 12 * * *", "UTC", START, utc("2026-01-02")) == utcs("2026-01-01T12:05")
    assert len(second_opinion("5-5/2 12 * * *", "UTC", START, utc("2026-01-02"))) == 28


def test_a_weekday_with_a_step_runs_to_saturday_here() -> None:
    # cronsim runs to 7 and so adds Sunday. croniter runs to Saturday, and so does this package.
    week = START, utc("2026-01-08")
    assert [f"{day:%a}" for day in ours("0 12 * * 1/2", "UTC", *week)] == ["Fri", "Mon", "Wed"]
    assert [f"{day:%a}" for day in second_opinion("0 12 * * 1/2", "UTC", *week)] == ["Fri", "Sun", "Mon", "Wed"]


@pytest.mark.parametrize(
    ("expression", "zone", "change"),
    [
        ("*/7 23 * * *", "Australia/Lord_Howe", "2024-04-06T15:00"),
        ("*/5 2-3 * * *", "Australia/Lord_Howe", "2024-04-06T15:00"),
        ("30 */6 * * *", "Antarctica/Casey", "2020-10-03T16:01"),
        ("*/30 1 * * *", "Asia/Kathmandu", "1985-12-31T18:30"),
        ("0 * * * *", "America/Caracas", "2016-05-01T07:00"),
    ],
)
def test_cronsim_loses_elapsed_times_after_a_change_by_half_an_hour(expression: str, zone: str, change: str) -> None:
    # It looks for the hour in steps of an hour, from a time that a change by half an hour has put on the half hour.
    # (With the changes at 00:01 that St. John's had, it does not come back at all.)
    moment = stamp(utc(change))
    after, until = moment - 36 * 3600, moment + 36 * 3600
    interval = datetime.fromtimestamp(after, UTC), datetime.fromtimestamp(until, UTC)
    right = Oracle(expression).fires(clock(ZoneInfo(zone), after, until), after, until)
    assert [stamp(each) for each in ours(expression, zone, *interval)] == right
    lost = set(right) - {stamp(each) for each in second_opinion(expression, zone, *interval)}
    assert lost


def test_asked_in_the_second_pass_of_a_repeated_hour_cronsim_answers_with_the_first() -> None:
    # It drops the fold of the moment that it starts from, and so finds a time that is before it.
    second_0110 = utc("2026-11-01T06:10")  # New York, the second 01:10
    assert next(CronSim("30 1 * * *", second_0110.astimezone(ZoneInfo("America/New_York")))) < second_0110
    assert next_fires("30 1 * * *", "America/New_York", second_0110) == utcs("2026-11-02T06:30")
