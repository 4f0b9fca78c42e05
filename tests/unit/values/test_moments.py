"""Which datetimes are taken (P01): those that UTC and the project's zone can show, and no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from django_reliable_jobs.schedules import FiringRules, ScheduleError
from django_reliable_jobs.values.moments import moment

EAST, WEST = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York")
ZONES = st.sampled_from([UTC, EAST, WEST, timezone(timedelta(hours=23, minutes=59)), timezone(-timedelta(hours=23))])
EDGES = st.one_of(
    st.datetimes(), st.datetimes(min_value=datetime(9999, 12, 30)), st.datetimes(max_value=datetime(1, 1, 3))
)


@given(EDGES, ZONES, st.sampled_from(["UTC", "Asia/Ho_Chi_Minh", "America/New_York", "Pacific/Kiritimati"]))
def test_it_is_refused_or_it_can_be_told_in_utc_and_in_the_projects_zone(
    naive: datetime, zone: ZoneInfo, ours: str
) -> None:
    value = naive.replace(tzinfo=zone)
    with override_settings(TIME_ZONE=ours):
        if representable(value, ours):
            taken = moment(value, "run_at")
            assert taken == value
            assert representable(taken, ours)
        else:
            with pytest.raises(ValueError, match="run_at"):
                moment(value, "run_at")


def representable(value: datetime, zone: str) -> bool:
    try:
        value.astimezone(UTC).astimezone(ZoneInfo(zone))
    except (OverflowError, ValueError):
        return False
    return True


@pytest.mark.parametrize("value", [datetime.max.replace(tzinfo=WEST), datetime.min.replace(tzinfo=EAST)])
def test_a_schedule_neither_starts_nor_ends_beyond_the_calendar(value: datetime) -> None:
    for name in ("starts_at", "ends_at"):
        with pytest.raises(ScheduleError, match=name):
            FiringRules(**{name: value})  # type: ignore[arg-type]


def test_naive_ones_are_refused_under_use_tz_and_local_without() -> None:
    with pytest.raises(ValueError, match="run_at is a naive datetime"):
        moment(datetime(2026, 1, 1), "run_at")
    with override_settings(USE_TZ=False, TIME_ZONE="Asia/Ho_Chi_Minh"):
        assert moment(datetime(2026, 1, 1), "run_at") == datetime(2025, 12, 31, 17, tzinfo=UTC)
        with pytest.raises(ValueError, match="expires"):
            moment(datetime.min, "expires")
