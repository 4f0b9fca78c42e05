"""The rules that hold in every zone, for two years; and the days on which clocks change, minute by minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_reliable_jobs.schedules import CronExpression, next_fires
from tests.support.schedules.oracle import (
    DAY,
    MINUTE,
    Oracle,
    change_times,
    clock,
    kinds_of_zones,
    pairs,
    stamp,
    utc,
    zone_names,
)

START, END = utc("2026-01-01"), utc("2028-01-01")
FIRST, LAST = stamp(START), stamp(END)

#: What is asked in every zone: fixed times that a change can hit, and what follows elapsed time.
DAILY = ["30 2 * * *", "0 0 * * *", "15 1 * * *", "45 23 * * *"]
FIXED = [*DAILY, "0 3 * * 0", "0 2,3 1-7,L * 0"]
ELAPSED = ["30 */6 * * *", "*/30 1 * * *", "45 * */15 * *"]
#: More, for the days on which clocks change.
DENSE = ["0 * * * *", "*/5 2-3 * * *", "7 0-23 * * *", "5-55/10 0-4 * * *", "*/15 * 1-7,L * 0"]


@cache
def zone_kinds() -> dict[str, tuple[str, ...]]:
    """All zones, by how their clocks run in the two years: what holds for one of a kind holds for the others."""
    return kinds_of_zones(FIRST - 3 * DAY, LAST + 3 * DAY)


@cache
def fires(expression: str, zone: str) -> list[datetime]:
    return list(CronExpression.parse(expression, zone).between(START, END))


def each_kind(*expressions: str) -> Iterator[tuple[str, str, list[datetime]]]:
    for zone in zone_kinds():
        for expression in expressions:
            yield expression, zone, fires(expression, zone)


def test_there_are_zones_enough_for_these_tests() -> None:
    assert len(zone_names()) > 400
    assert sum(map(len, zone_kinds().values())) == len(zone_names())
    changing = [name for name in zone_kinds() if change_times(ZoneInfo(name), FIRST, LAST)]
    assert 20 < len(changing) < len(zone_kinds()) < 120


def test_zones_of_a_kind_fire_alike() -> None:
    for kind, names in zone_kinds().items():
        for expression in ("30 2 * * 0", "0 */7 * * *"):
            expected = next_fires(expression, kind, START, 30)
            assert {name for name in names if next_fires(expression, name, START, 30) != expected} == set()


def test_rule_1_fire_times_rise_and_each_is_later_than_what_was_asked() -> None:
    for expression, zone, found in each_kind(*FIXED, *ELAPSED):
        assert all(earlier < later for earlier, later in pairs(found)), (expression, zone)
        timetable = CronExpression.parse(expression, zone)
        for earlier, later in list(pairs(found))[::97]:
            assert timetable.next_after(earlier) == later, (expression, zone, earlier)
            assert timetable.next_after(later - timedelta(microseconds=1)) == later, (expression, zone, earlier)


def test_rule_2_what_the_clock_shows_matches_unless_it_has_just_left_a_gap() -> None:
    for expression, zone, found in each_kind(*FIXED, *ELAPSED):
        oracle, info = Oracle(expression), ZoneInfo(zone)
        moved = [each for each in found if not oracle.names(each.astimezone(info).replace(tzinfo=None))]
        ends_of_gaps = {moment for moment, _ in change_times(info, FIRST, LAST)} if oracle.fixed else set()
        assert {stamp(each) for each in moved} <= ends_of_gaps, (expression, zone)


def test_rule_3_every_minute_is_hit_and_every_hour_where_offsets_are_whole_hours() -> None:
    for zone in zone_kinds():
        every_minute = CronExpression.parse("* * * * *", zone)
        assert every_minute.count(START, END) == (LAST - FIRST) // MINUTE, zone
        info = ZoneInfo(zone)
        offsets = [datetime.fromtimestamp(FIRST, info).utcoffset()]
        offsets += [timedelta(seconds=offset) for _, offset in change_times(info, FIRST, LAST)]
        if all(offset is not None and offset % timedelta(hours=1) == timedelta(0) for offset in offsets):
            assert [stamp(each) for each in fires("0 * * * *", zone)] == list(range(FIRST + 3600, LAST + 1, 3600))


def test_rule_4_a_fixed_time_fires_once_for_each_local_date_and_is_back_in_its_place_the_day_after() -> None:
    for expression, zone, found in each_kind(*DAILY):
        minute, hour, *_ = expression.split()
        wall_clock = timedelta(hours=int(hour), minutes=int(minute))
        info = ZoneInfo(zone)
        # A gap can end at midnight (Nuuk): the run that moves there is the one of the date before.
        dates = [_date_of(each, info, wall_clock) for each in found]
        assert all(tomorrow - today == timedelta(days=1) for today, tomorrow in pairs(dates)), (expression, zone)
        assert 730 <= len(dates) <= 731
        late = [each for each in found if each.astimezone(info).time() != (datetime.min + wall_clock).time()]
        assert all(later - earlier > timedelta(days=30) for earlier, later in pairs(late)), (expression, zone)


def _date_of(moment: datetime, zone: ZoneInfo, wall_clock: timedelta) -> date:
    """Return the local date whose time is `wall_clock` and that `moment` is the run for."""
    local = moment.astimezone(zone).replace(tzinfo=None)
    just_before = (moment - timedelta(seconds=1)).astimezone(zone).replace(tzinfo=None)
    for day in (just_before.date(), local.date()):
        if just_before < datetime.combine(day, datetime.min.time()) + wall_clock <= local:
            return day
    raise AssertionError(f"{moment} is no run of {wall_clock} in {zone}")


def test_rule_5_every_question_gets_the_same_answer() -> None:
    for expression, zone, found in each_kind(*FIXED, *ELAPSED):
        timetable = CronExpression.parse(expression, zone)
        assert timetable.count(START, END) == len(found), (expression, zone)
        assert timetable.newest(START, END, 100_000) == found, (expression, zone)
        assert next_fires(expression, zone, START, 50) == found[:50], (expression, zone)
        assert timetable.latest_at(END) == found[-1]
        for earlier, later in list(pairs(found))[::97]:
            assert timetable.latest_at(later) == later
            assert timetable.latest_at(later - timedelta(seconds=1)) == earlier, (expression, zone, later)
            assert timetable.matches(later)
            assert not timetable.matches(later - timedelta(seconds=1))
            assert not timetable.matches(later + timedelta(microseconds=1))


def test_the_days_around_every_change_are_as_a_ticking_clock_has_them() -> None:
    oracles = {expression: Oracle(expression) for expression in [*FIXED, *ELAPSED, *DENSE]}
    for zone in zone_kinds():
        for moment, _ in change_times(ZoneInfo(zone), FIRST, LAST):
            after, until = moment - DAY // 2, moment + DAY // 2
            shown = clock(ZoneInfo(zone), after, until)
            for expression, oracle in oracles.items():
                assert _found(expression, zone, after, until) == oracle.fires(shown, after, until), (expression, zone)


def _found(expression: str, zone: str, after: int, until: int) -> list[int]:
    timetable = CronExpression.parse(expression, zone)
    start, end = datetime.fromtimestamp(after, UTC), datetime.fromtimestamp(until, UTC)
    found = list(timetable.between(start, end))
    assert timetable.newest(start, end, 10_000) == found
    assert timetable.count(start, end) == len(found)
    return [stamp(each) for each in found]


#: Changes that are unlike the others: zone, instant, and what is special. All in the past: governments change plans.
ODD_CHANGES = [
    ("Pacific/Apia", "2011-12-30T10:00", "a whole day left out"),
    ("Pacific/Kwajalein", "1993-08-21T12:00", "a whole day left out"),
    ("Antarctica/Vostok", "1994-01-31T17:00", "seven hours back"),
    ("Antarctica/Vostok", "1994-11-01T00:00", "seven hours forward"),
    ("Antarctica/Casey", "2020-10-03T16:01", "three hours forward, one minute past midnight"),
    ("Antarctica/Casey", "2020-03-07T16:00", "three hours back, over midnight"),
    ("Antarctica/Troll", "2024-03-31T01:00", "two hours forward"),
    ("Antarctica/Troll", "2024-10-27T01:00", "two hours back"),
    ("Australia/Lord_Howe", "2024-04-06T15:00", "half an hour back"),
    ("Australia/Lord_Howe", "2024-10-05T15:30", "half an hour forward"),
    ("America/Havana", "2024-03-10T05:00", "the gap begins at midnight"),
    ("America/Havana", "2024-11-03T05:00", "back to midnight"),
    ("Asia/Beirut", "2024-03-30T22:00", "the gap begins at midnight"),
    ("Asia/Beirut", "2024-10-26T21:00", "at midnight, back to the day before"),
    ("America/Nuuk", "2024-03-31T01:00", "the gap ends at midnight"),
    ("America/Nuuk", "2024-10-27T01:00", "at midnight, back to the day before"),
    ("America/Sao_Paulo", "2018-11-04T03:00", "the gap begins at midnight"),
    ("America/Sao_Paulo", "2018-02-18T02:00", "at midnight, back to the day before"),
    ("America/St_Johns", "2010-03-14T03:31", "the gap begins at 00:01"),
    ("America/St_Johns", "2010-11-07T02:31", "at 00:01, back to the day before"),
    ("Africa/Casablanca", "2024-03-10T02:00", "back for Ramadan"),
    ("Europe/Dublin", "2024-03-31T01:00", "winter time is the daylight saving time"),
    ("Pacific/Chatham", "2024-09-28T14:00", "at 02:45"),
    ("America/Caracas", "2016-05-01T07:00", "half an hour forward, for good"),
    ("Asia/Pyongyang", "2015-08-14T15:00", "half an hour back, for good"),
    ("Asia/Kathmandu", "1985-12-31T18:30", "a quarter of an hour forward, for good"),
    ("Asia/Baku", "2012-03-25T00:00", "at the edge of a cached block of days"),
    ("Europe/London", "1968-02-18T02:00", "the start of three years of summer time"),
]
MANY = [
    *FIXED, *ELAPSED, *DENSE, "* * * * *", "0-59 0-23 * * *", "59 23 * * *", "1 0 * * *", "0 12 * * *",
    "0 0 30,31 12 *", "30 2 * * 1-5", "0,15,30,45 22-23 * * *", "*/7 23 * * *", "50 */5 * * *", "0 1 1-31 * 0-6", "45 2 L * *",
]  # fmt: skip


@pytest.mark.parametrize(("zone", "change", "what"), ODD_CHANGES)
def test_odd_changes_are_as_a_ticking_clock_has_them(zone: str, change: str, what: str) -> None:
    moment = stamp(utc(change))
    assert moment in {found for found, _ in change_times(ZoneInfo(zone), moment - DAY, moment + DAY)}, "no change there"
    after, until = moment - 30 * 3600, moment + 30 * 3600
    shown = clock(ZoneInfo(zone), after, until)
    for expression in MANY:
        assert _found(expression, zone, after, until) == Oracle(expression).fires(shown, after, until), expression


@pytest.mark.parametrize(
    ("expression", "zone", "after", "answers"),
    [
        # Midnight does not exist: the day starts at 01:00, which is 05:00 UTC.
        ("0 0 * * *", "America/Havana", "2024-03-09T06:00", ["2024-03-10T05:00", "2024-03-11T04:00"]),
        # Midnight comes twice.
        ("0 0 * * *", "America/Havana", "2024-11-02T05:00", ["2024-11-03T04:00", "2024-11-04T05:00"]),
        ("0 0 * * *", "Asia/Beirut", "2024-03-30T00:00", ["2024-03-30T22:00", "2024-03-31T21:00"]),
        # 23:30 comes twice on Saturday evening, in the other zone it never comes and is made up for at midnight.
        ("30 23 * * *", "Asia/Beirut", "2024-10-26T00:00", ["2024-10-26T20:30", "2024-10-27T21:30"]),
        ("30 23 * * *", "America/Nuuk", "2024-03-30T12:00", ["2024-03-31T01:00", "2024-04-01T00:30"]),
        # Samoa had no 30 December 2011: its noon is made up for, its midnight is that of the 31st.
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T22:00", ["2011-12-30T10:00", "2011-12-30T22:00"]),
        ("0 0 * * *", "Pacific/Apia", "2011-12-29T10:00", ["2011-12-30T10:00", "2011-12-31T10:00"]),
        ("0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00", ["2011-12-30T10:00", "2012-12-29T22:00"]),
        ("0 * * * *", "Pacific/Apia", "2011-12-30T08:30", ["2011-12-30T09:00", "2011-12-30T10:00", "2011-12-30T11:00"]),
        # Half an hour: 02:00 to 02:30 is left out in October, 01:30 to 02:00 comes twice in April.
        ("15 2 * * *", "Australia/Lord_Howe", "2024-10-05T00:00", ["2024-10-05T15:30", "2024-10-06T15:15"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2024-04-06T00:00", ["2024-04-06T14:45", "2024-04-07T15:15"]),
        ("0 * * * *", "Australia/Lord_Howe", "2024-10-05T14:00", ["2024-10-05T14:30", "2024-10-05T16:00"]),
        ("30 10 * * *", "Asia/Kathmandu", "2026-08-01T00:00", ["2026-08-01T04:45", "2026-08-02T04:45"]),
        # All that a gap swallows falls on one instant, together with what is due at its end.
        ("0,30 2,3 * * *", "America/New_York", "2026-03-08T06:00", ["2026-03-08T07:00", "2026-03-08T07:30"]),
        ("0-59 0-23 * * *", "America/New_York", "2026-03-08T06:58", ["2026-03-08T06:59", "2026-03-08T07:00"]),
        # A star in the minute or the hour: nothing in the gap, both in the repeat.
        ("*/30 2 * * *", "America/New_York", "2026-03-08T00:00", ["2026-03-09T06:00", "2026-03-09T06:30"]),
        ("*/30 1 * * *", "America/New_York", "2026-11-01T05:00", ["2026-11-01T05:30", "2026-11-01T06:00"]),
    ],
)  # fmt: skip
def test_known_answers_of_odd_zones(expression: str, zone: str, after: str, answers: list[str]) -> None:
    assert next_fires(expression, zone, utc(after), len(answers)) == [utc(answer) for answer in answers]


def test_an_offset_with_seconds_moves_a_fixed_time_to_the_second_at_which_the_gap_ends() -> None:
    # Liberia was 44 minutes and 30 seconds behind until 1972-01-07 00:00 by its clock.
    found = next_fires("10 0 * * *", "Africa/Monrovia", utc("1972-01-06T00:00"), 3)
    assert [each.isoformat() for each in found] == [
        "1972-01-06T00:54:30+00:00",
        "1972-01-07T00:44:30+00:00",
        "1972-01-08T00:10:00+00:00",
    ]


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    ranges = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.integers(1, high - low + 1).map(lambda step: f"*/{step}")
    stepped = st.builds("{}/{}".format, ranges, st.integers(1, 7))
    item = st.one_of(number.map(str), ranges, stepped)
    return st.one_of(st.just("*"), steps, st.lists(item, min_size=1, max_size=3).map(",".join))


EXPRESSIONS = st.tuples(numbers(0, 59), numbers(0, 23), numbers(1, 28) | st.just("L"), st.just("*"), numbers(0, 6)).map(
    " ".join
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EXPRESSIONS, st.sampled_from([(zone, change) for zone, change, _ in ODD_CHANGES]), st.integers(-30, 6))
def test_any_expression_around_a_change_is_as_a_ticking_clock_has_it(
    expression: str, where: tuple[str, str], hours: int
) -> None:
    zone, change = where
    moment = stamp(utc(change))
    shown = clock(ZoneInfo(zone), moment - 30 * 3600, moment + 30 * 3600)
    after = moment + hours * 3600
    until = after + DAY
    assert _found(expression, zone, after, until) == Oracle(expression).fires(shown, after, until)
