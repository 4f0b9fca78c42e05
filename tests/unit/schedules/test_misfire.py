from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_reliable_jobs.schedules import (
    Every,
    FiringRules,
    Misfire,
    Overlap,
    Plan,
    ScheduleError,
    Stretch,
    Timetable,
    as_timetable,
    fires,
    next_fire,
    plan,
)
from tests.support.schedules.oracle import utc, utcs

HOURLY = as_timetable("0 * * * *", "UTC")
NOON = utc("2026-08-01T12:00")


def hours(*numbers: int) -> tuple[datetime, ...]:
    return tuple(utc("2026-08-01") + timedelta(hours=number) for number in numbers)


def missed(first: int, last: int) -> Stretch:
    return Stretch(hours(first)[0], hours(last)[0], last - first + 1)


def planned(fired_through: str, now: str, timetable: Timetable = HOURLY, **rules: Any) -> Plan:
    return plan(timetable, FiringRules(**rules), utc(f"2026-08-01T{fired_through}"), utc(f"2026-08-01T{now}"))


def test_nothing_is_due() -> None:
    assert planned("12:00", "12:59:59") == Plan((), None, NOON, hours(13)[0])


@pytest.mark.parametrize("misfire", Misfire)
@pytest.mark.parametrize("now", ["13:00", "13:00:02", "13:00:30", "13:00:59"])
def test_a_fire_that_is_merely_late_gets_its_job_whatever_the_policy(misfire: Misfire, now: str) -> None:
    assert planned("12:00", now, misfire=misfire) == Plan(hours(13), None, hours(13)[0], hours(14)[0])


@pytest.mark.parametrize("misfire", Misfire)
def test_each_of_several_late_ones_gets_its_job(misfire: Misfire) -> None:
    found = planned("00:10", "04:30", misfire=misfire, misfire_grace=timedelta(hours=2))
    assert found.enqueue == (hours(1, 2, 3, 4) if misfire is Misfire.ALL else hours(3, 4))


@pytest.mark.parametrize(("grace", "late", "taken"), [(60, 59, True), (60, 60, False), (300, 299, True), (2, 2, False)])
def test_it_is_missed_once_it_is_as_late_as_the_grace(grace: int, late: int, taken: bool) -> None:
    rules = FiringRules(misfire="skip", misfire_grace=grace)
    found = plan(HOURLY, rules, NOON, hours(13)[0] + timedelta(seconds=late))
    assert (found.enqueue, found.skipped) == ((hours(13), None) if taken else ((), missed(13, 13)))
    assert (found.fired_through, found.next_fire) == hours(13, 14)


def test_skip_makes_up_for_nothing_and_leaves_one_row() -> None:
    assert planned("00:10", "03:50", misfire="skip") == Plan((), missed(1, 3), *hours(3, 4))


def test_latest_makes_up_for_the_newest_missed_one() -> None:
    assert planned("00:10", "03:50") == Plan(hours(3), missed(1, 2), *hours(3, 4))


def test_latest_makes_up_for_nothing_if_one_that_is_not_missed_is_due() -> None:
    assert planned("00:10", "04:00:20") == Plan(hours(4), missed(1, 3), *hours(4, 5))


def test_all_makes_up_for_each() -> None:
    assert planned("00:10", "04:00:20", misfire="all") == Plan(hours(1, 2, 3, 4), None, *hours(4, 5))


def test_all_makes_up_for_the_newest_within_the_limit() -> None:
    found = planned("00:10", "05:30", misfire="all", catch_up_limit=2)
    assert found == Plan(hours(4, 5), missed(1, 3), *hours(5, 6))


@pytest.mark.parametrize("misfire", ["latest", "all"])
def test_what_is_older_than_the_window_is_skipped(misfire: str) -> None:
    found = planned("00:10", "05:30", misfire=misfire, catch_up_window=timedelta(minutes=29))
    assert found == Plan((), missed(1, 5), *hours(5, 6))
    found = planned("00:10", "05:30", misfire=misfire, catch_up_window=timedelta(minutes=30))
    assert found == Plan(hours(5), missed(1, 4), *hours(5, 6))


def test_a_window_that_is_shorter_than_the_grace_does_not_drop_what_is_merely_late() -> None:
    assert planned("12:00", "13:00:30", misfire="all", catch_up_window=0) == Plan(
        hours(13), None, hours(13)[0], hours(14)[0]
    )


def test_more_late_ones_than_the_limit_are_skipped_too() -> None:
    found = planned("12:00:00", "12:00:50", timetable=Every(1), misfire="skip", catch_up_limit=20)
    assert (len(found.enqueue), found.enqueue[-1]) == (20, utc("2026-08-01T12:00:50"))
    assert found.skipped == Stretch(utc("2026-08-01T12:00:01"), utc("2026-08-01T12:00:30"), 30)


def test_the_start_and_the_end_belong_to_the_schedule() -> None:
    rules: dict[str, Any] = {"misfire": "all", "starts_at": hours(3)[0], "ends_at": hours(5)[0]}
    assert planned("00:10", "02:00", **rules) == Plan((), None, utc("2026-08-01T00:10"), *hours(3))
    assert planned("00:10", "04:00", **rules) == Plan(hours(3, 4), None, *hours(4, 5))
    assert planned("00:10", "09:00", **rules) == Plan(hours(3, 4, 5), None, hours(5)[0], None)
    assert planned("05:00", "09:00", **rules) == Plan((), None, hours(5)[0], None)
    assert planned("08:00", "09:00", **rules) == Plan((), None, hours(8)[0], None)


def test_fire_times_outside_start_and_end_are_not_skipped_but_do_not_exist() -> None:
    found = planned("00:10", "09:30", starts_at=hours(3)[0], ends_at=hours(5)[0], misfire="skip")
    assert found.skipped == missed(3, 5)


def test_the_next_fire_and_a_backfill_heed_start_and_end() -> None:
    rules = FiringRules(starts_at=hours(3)[0] + timedelta(microseconds=1), ends_at=hours(5)[0])
    assert next_fire(HOURLY, rules, hours(0)[0]) == hours(4)[0]
    assert next_fire(HOURLY, rules, hours(4)[0]) == hours(5)[0]
    assert next_fire(HOURLY, rules, hours(5)[0]) is None
    assert list(fires(HOURLY, rules, *hours(0, 24))) == list(hours(4, 5))


def test_a_clock_that_was_set_back_changes_nothing() -> None:
    assert planned("12:00", "09:30") == Plan((), None, *hours(12, 13))


@pytest.mark.parametrize("expression", ["* * * * *", "0-59 0-23 * * *", "@every 1"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_400_days_of_downtime_are_dealt_with_at_once(expression: str, zone: str) -> None:
    now = utc("2026-11-20T12:00:20")
    timetable = as_timetable(expression, zone)
    started = time.process_time()  # of this process alone: other programs do not count
    found = plan(timetable, FiringRules(), now - timedelta(days=400), now)
    assert time.process_time() - started < 0.5  # it takes some milliseconds; step by step it would be many seconds
    assert found.skipped is not None
    assert found.fired_through <= now < (found.next_fire or now)
    assert found.skipped.count + len(found.enqueue) == timetable.count(now - timedelta(days=400), now)


def test_a_day_of_missed_minutes_is_one_run_and_one_row() -> None:
    now = utc("2026-08-02T00:00:30")
    found = plan(as_timetable("* * * * *", "UTC"), FiringRules(), utc("2026-08-01"), now)
    assert found.enqueue == tuple(utcs("2026-08-02"))
    assert found.skipped == Stretch(utc("2026-08-01T00:01"), utc("2026-08-01T23:59"), 1439)


MOMENTS = st.integers(0, 5 * 24 * 3600).map(lambda seconds: utc("2026-10-30") + timedelta(seconds=seconds))
TIMETABLES = st.sampled_from(
    [
        as_timetable("*/30 * * * *", "America/New_York"),
        as_timetable("30 1,13 * * *", "America/New_York"),
        as_timetable("0-59/20 0-3 * * *", "America/New_York"),
        Every(5000),
    ]
)
DURATIONS = st.sampled_from([0, 59, 60, 3600, 7200, 86_400])
RULES = st.builds(
    FiringRules,
    misfire=st.sampled_from(Misfire),
    misfire_grace=DURATIONS,
    catch_up_window=DURATIONS,
    catch_up_limit=st.sampled_from([1, 2, 5, 100]),
    starts_at=st.none() | st.just(utc("2026-11-01T05:30")),
    ends_at=st.none() | st.just(utc("2026-11-02T06:30")),
)


@settings(deadline=None)
@given(TIMETABLES, RULES, MOMENTS, MOMENTS)
def test_every_fire_time_is_either_taken_or_skipped(
    timetable: Timetable, rules: FiringRules, one: datetime, other: datetime
) -> None:
    fired_through, now = min(one, other), max(one, other)
    found = plan(timetable, rules, fired_through, now)
    due = list(fires(timetable, rules, fired_through, now))
    skipped = due[: len(due) - len(found.enqueue)]
    assert list(found.enqueue) == due[len(skipped) :]
    assert found.skipped == (Stretch(skipped[0], skipped[-1], len(skipped)) if skipped else None)
    assert found.fired_through == (due[-1] if due else fired_through)
    assert found.next_fire == next_fire(timetable, rules, now)
    assert len(found.enqueue) <= rules.catch_up_limit

    lateness = [(now - each).total_seconds() for each in found.enqueue]
    missed = [late for late in lateness if late >= rules.misfire_grace]
    assert all(late <= rules.catch_up_window for late in missed)
    assert len(missed) <= {Misfire.SKIP: 0, Misfire.LATEST: 1, Misfire.ALL: rules.catch_up_limit}[rules.misfire]
    if len(found.enqueue) < rules.catch_up_limit and skipped:
        reasons = {
            Misfire.SKIP: True,
            Misfire.LATEST: bool(found.enqueue) or (now - skipped[-1]).total_seconds() > rules.catch_up_window,
            Misfire.ALL: (now - skipped[-1]).total_seconds() > rules.catch_up_window,
        }
        assert reasons[rules.misfire]
        assert (now - skipped[-1]).total_seconds() >= rules.misfire_grace


@settings(deadline=None)
@given(TIMETABLES, MOMENTS, st.lists(st.integers(1, 40), min_size=1, max_size=200))
def test_ticks_that_come_within_the_grace_take_each_fire_time_once(
    timetable: Timetable, start: datetime, steps: list[int]
) -> None:
    now, fired_through, taken = start, start, list[datetime]()
    for step in steps:
        now += timedelta(seconds=step)
        found = plan(timetable, FiringRules(misfire="skip"), fired_through, now)
        assert found.skipped is None
        taken += found.enqueue
        fired_through = found.fired_through
    assert taken == list(timetable.between(start, now))


@pytest.mark.parametrize(
    ("rules", "field", "words"),
    [
        ({"misfire": "latst"}, "misfire", "misfire must be one of 'skip', 'latest', 'all', not 'latst'"),
        ({"overlap": None}, "overlap", "overlap must be one of 'allow', 'skip', 'queue', 'cancel_running', not None"),
        ({"misfire_grace": -1}, "misfire_grace", "misfire_grace must be zero or more seconds"),
        ({"catch_up_window": float("nan")}, "catch_up_window", "catch_up_window must be"),
        ({"jitter": timedelta(seconds=-1)}, "jitter", "jitter must be zero or more"),
        ({"catch_up_limit": 0}, "catch_up_limit", "from 1 to 10000"),
        ({"starts_at": datetime(2026, 8, 1)}, "starts_at", "starts_at must be an aware datetime"),
        ({"starts_at": NOON, "ends_at": NOON - timedelta(1)}, "ends_at", "must not be earlier than starts_at"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rules: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ScheduleError, match=words) as caught:
        FiringRules(**rules)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "rules", [{"jitter": "5"}, {"catch_up_limit": 1.5}, {"catch_up_limit": True}, {"ends_at": "x"}]
)
def test_rules_of_a_wrong_type_are_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(rules))):
        FiringRules(**rules)


def test_the_rules_of_a_schedule_that_says_nothing() -> None:
    rules = FiringRules()
    assert (rules.misfire, rules.misfire_grace, rules.catch_up_window) == (Misfire.LATEST, 60, 86_400)
    assert (rules.overlap, rules.jitter, rules.starts_at, rules.ends_at) == (Overlap.ALLOW, 0, None, None)
