"""What is given to `using()` and to the schedules is refused before anything is written (P01, N03)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import IntegrityError, connection
from django.test import override_settings

from django_reliable_jobs import Retry, Snooze
from django_reliable_jobs.models import Job
from django_reliable_jobs.values.durations import MAX_SECONDS
from tests.support.probes import jobs as probes

EAST, WEST = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York")
FAR = {
    "the end of the calendar in the west": datetime.max.replace(tzinfo=WEST),
    "the beginning of the calendar in the east": datetime.min.replace(tzinfo=EAST),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("option", ["run_at", "run_after", "expires"])
@pytest.mark.parametrize("far", FAR.values(), ids=FAR)
def test_a_moment_beyond_the_calendar_is_refused_and_no_row_is_left(option: str, far: datetime) -> None:
    for enqueue in (lambda job: job.enqueue(), lambda job: job.enqueue_many([(1,), (2,)])):
        with pytest.raises(ValueError, match="beyond the calendar"):
            enqueue(probes.noop.using(**{option: far}))  # type: ignore[misc]
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_what_the_projects_zone_cannot_show_is_refused() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    with override_settings(TIME_ZONE="Asia/Ho_Chi_Minh"), pytest.raises(ValueError, match="Asia/Ho_Chi_Minh"):
        probes.noop.using(run_at=last).enqueue()
    assert not Job.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("edge", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_what_is_taken_comes_back_as_it_is(edge: datetime) -> None:
    assert connection.timezone_name == "UTC"
    made = probes.noop.using(run_at=edge, expires=datetime.max.replace(tzinfo=UTC)).enqueue()
    assert made.run_at == edge == Job.objects.get(pk=made.pk).run_at


@pytest.mark.django_db
@pytest.mark.parametrize(
    "options",
    [
        {"delay": timedelta.max}, {"delay": math.inf}, {"delay": 1e300}, {"delay": -1}, {"delay": math.nan},
        {"expires": timedelta.max}, {"expires": 1e300}, {"expires": -math.inf}, {"timeout": math.nan},
        {"timeout": timedelta.max}, {"timeout": math.inf}, {"run_after": 1e300}, {"max_attempts": 2**31},
        {"priority": 10**40},
    ],
    ids=str,
)  # fmt: skip
def test_durations_and_numbers_without_an_end_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="|".join({"run_after": "delay"}.get(each, each) for each in options)):
        probes.noop.using(**options).enqueue()
    assert not Job.objects.exists()


def test_delays_that_a_handler_asks_for_are_refused_or_bounded() -> None:
    """Ten years are as good as any longer time, and an error would only lose the job."""
    assert Snooze(1e300).delay == Snooze(math.inf).delay == Retry(delay=math.inf).delay == MAX_SECONDS
    for wrong in (math.nan, -1, timedelta.min):
        with pytest.raises(ValueError, match="delay"):
            Retry(delay=wrong)
        with pytest.raises(ValueError, match="delay"):
            Snooze(wrong)


@pytest.mark.django_db
@pytest.mark.parametrize("value", ["infinity", "-infinity", "10000-01-01 00:00+00", "0001-12-31 23:59+00 BC"])
@pytest.mark.parametrize("column", ["run_at", "expires_at", "started_at", "locked_until"])
def test_the_table_refuses_them_too(column: str, value: str) -> None:
    job = probes.noop.enqueue()
    with pytest.raises(IntegrityError, match="reliable_jobs_calendar"), connection.cursor() as cursor:
        cursor.execute(f"UPDATE django_reliable_jobs_job SET {column} = %s WHERE id = %s", [value, job.pk])
