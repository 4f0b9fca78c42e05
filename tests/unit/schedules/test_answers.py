"""Answers that are known: from bug reports of other schedulers, and from brute force over the zones."""

from __future__ import annotations

from datetime import datetime

import pytest

from django_reliable_jobs.schedules import ScheduleError, as_timetable, next_fires
from tests.support.schedules.oracle import utc, utcs

NEW_YORK = "America/New_York"


def at(time: str, *days: str) -> list[datetime]:
    """Return the moments of these days (month-day of 2026, or whole dates) at this time, in UTC."""
    return [utc(f"{day if len(day) > 5 else '2026-' + day}T{time}") for day in days]


L_DAYS = ("08-31", "09-30", "10-31", "11-30", "12-31", "2027-01-31", "2027-02-28")
FRIDAYS = ("08-01", "08-07", "08-14", "08-15", "08-21", "08-28", "09-01", "09-04")

ANSWERS = [
    # A fixed time in a gap moves to the end of the gap, and is back at its place on the next day.
    ("30 2 * * *", NEW_YORK, "2026-03-07T08:00", utcs("2026-03-08T07:00", "2026-03-09T06:30")),
    ("0 * * * *", NEW_YORK, "2026-03-08T05:30", at("06:00", "03-08") + at("07:00", "03-08") + at("08:00", "03-08")),
    ("* * * * *", NEW_YORK, "2026-03-08T06:59", at("07:00", "03-08")),
    ("*/5 * * * *", NEW_YORK, "2026-03-08T06:59", at("07:00", "03-08")),
    ("0 * * * *", NEW_YORK, "2026-03-08T06:59", at("07:00", "03-08")),
    # A repeated hour: elapsed time goes on, a fixed time fires at the first of the two.
    (
        "0 * * * *",
        NEW_YORK,
        "2026-11-01T03:30",
        utcs("2026-11-01T04:00", "2026-11-01T05:00", "2026-11-01T06:00", "2026-11-01T07:00", "2026-11-01T08:00"),
    ),
    (
        "*/30 * * * *",
        NEW_YORK,
        "2026-11-01T04:45",
        utcs("2026-11-01T05:00", "2026-11-01T05:30", "2026-11-01T06:00", "2026-11-01T06:30", "2026-11-01T07:00"),
    ),
    ("30 1 * * *", NEW_YORK, "2026-10-31T08:00", utcs("2026-11-01T05:30", "2026-11-02T06:30")),
    (
        "20 2 * * *",
        "Europe/Paris",
        "2026-10-23T12:00",
        utcs("2026-10-24T00:20", "2026-10-25T00:20", "2026-10-26T01:20", "2026-10-27T01:20"),
    ),
    # Steps of a calendar day or month are not steps of 24 hours.
    ("0 12 * * 0", "Europe/Berlin", "2026-03-26T11:00", utcs("2026-03-29T10:00", "2026-04-05T10:00")),
    ("0 0 1 */3 *", NEW_YORK, "2026-02-15T12:00", utcs("2026-04-01T04:00", "2026-07-01T04:00")),
    # Day-of-month with day-of-week: either is enough, unless one of the fields starts with a star.
    ("30 4 1,15 * 5", "UTC", "2026-08-01", at("04:30", *FRIDAYS)),
    ("0 0 */2 * 1", "UTC", "2026-08-01", at("00:00", "08-03", "08-17", "08-31", "09-07")),
    ("0 0 15 * */3", "UTC", "2026-08-01", at("00:00", "08-15", "11-15", "2027-05-15")),
    # Sunday has two numbers, and weekday ranges may reach it or pass it.
    ("0 0 * * 7", "UTC", "2026-08-05", at("00:00", "08-09", "08-16")),
    ("0 0 * * 0,7", "UTC", "2026-08-05", at("00:00", "08-09", "08-16")),
    ("0 0 * * sun", "UTC", "2026-08-05", at("00:00", "08-09", "08-16")),
    ("0 0 * * 5-7", "UTC", "2026-08-05", at("00:00", "08-07", "08-08", "08-09", "08-14")),
    ("0 0 * * SAT-SUN", "UTC", "2026-08-05", at("00:00", "08-08", "08-09", "08-15", "08-16")),
    ("0 0 * * FRI-MON", "UTC", "2026-08-05", at("00:00", "08-07", "08-08", "08-09", "08-10", "08-14")),
    # The last day of the month.
    ("0 0 L * *", "UTC", "2026-08-15", at("00:00", *L_DAYS)),
    ("0 0 31,L * *", "UTC", "2026-08-15", at("00:00", *L_DAYS)),
    ("0 0 L 2 *", "UTC", "2027-01-01", at("00:00", "2027-02-28", "2028-02-29", "2029-02-28")),
    # Leap years, and the century that has none.
    ("0 0 29 2 *", "UTC", "2095-01-01", at("00:00", "2096-02-29", "2104-02-29")),
    ("0 0 29 2 */7", "UTC", "2026-01-01", at("00:00", "2032-02-29", "2060-02-29", "2088-02-29")),
    # Nicknames.
    ("@hourly", "UTC", "2026-08-01T00:30", utcs("2026-08-01T01:00", "2026-08-01T02:00")),
    ("@daily", "Asia/Kathmandu", "2026-08-01", at("18:15", "08-01", "08-02")),
    ("@midnight", "UTC", "2026-08-01", at("00:00", "08-02", "08-03")),
    ("@weekly", "UTC", "2026-08-01", at("00:00", "08-02", "08-09")),
    ("@monthly", "UTC", "2026-08-01", at("00:00", "09-01", "10-01")),
    ("@yearly", "UTC", "2026-08-01", at("00:00", "2027-01-01", "2028-01-01")),
    ("@annually", "UTC", "2026-08-01", at("00:00", "2027-01-01", "2028-01-01")),
    # Periods count from 1970-01-01 UTC.
    ("@every 7m", "UTC", "1970-01-01T00:00", utcs("1970-01-01T00:07", "1970-01-01T00:14")),
    ("@every 90", "Asia/Tokyo", "2026-08-01", utcs("2026-08-01T00:01:30", "2026-08-01T00:03")),
]


@pytest.mark.parametrize(("expression", "zone", "after", "answers"), ANSWERS)
def test_the_known_answers(expression: str, zone: str, after: str, answers: list[datetime]) -> None:
    assert next_fires(expression, zone, utc(after), len(answers)) == answers


@pytest.mark.parametrize(("expression", "zone", "after", "answers"), ANSWERS)
def test_every_other_question_has_the_same_answers(
    expression: str, zone: str, after: str, answers: list[datetime]
) -> None:
    timetable = as_timetable(expression, zone)
    assert list(timetable.between(utc(after), answers[-1])) == answers
    assert timetable.count(utc(after), answers[-1]) == len(answers)
    assert timetable.newest(utc(after), answers[-1], 1_000) == answers
    assert all(timetable.matches(answer) and timetable.latest_at(answer) == answer for answer in answers)


@pytest.mark.parametrize("zone", ["UTC", NEW_YORK, "Pacific/Apia"])
@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30,31 feb *", "0 0 31 4 */2"])
def test_a_date_that_never_comes_is_refused(expression: str, zone: str) -> None:
    with pytest.raises(ScheduleError, match="day-of-month: there is no day 3") as caught:
        next_fires(expression, zone, utc("2026-08-01"))
    assert caught.value.field == "day-of-month"


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("0 0 30 2 1", "2026-08-03"),  # or a Monday, and only in February
        ("0 0 30,L 2 *", "2027-02-28"),
        ("0 0 29,30 2 *", "2028-02-29"),
        ("0 0 31 2,12 *", "2026-12-31"),
    ],
)
def test_a_date_that_comes_some_time_is_not_refused(expression: str, first: str) -> None:
    assert next_fires(expression, "UTC", utc("2026-08-01"))[0] >= utc(first)
