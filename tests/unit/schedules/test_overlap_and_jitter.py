from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_reliable_jobs.schedules import Action, Overlap, Unfinished, decide, decide_all, jitter
from tests.support.schedules.oracle import utc, utcs

NOON = utc("2026-08-01T12:00")
FIRES = utcs("2026-08-01", "2026-08-02", "2026-08-03")


@pytest.mark.parametrize("overlap", Overlap)
def test_with_nothing_unfinished_each_policy_enqueues(overlap: Overlap) -> None:
    assert decide(overlap, Unfinished()) is Action.ENQUEUE


@pytest.mark.parametrize(
    ("overlap", "running", "waiting", "action"),
    [
        ("allow", 1, 0, Action.ENQUEUE),
        ("allow", 3, 9, Action.ENQUEUE),
        ("skip", 1, 0, Action.SKIP),
        ("skip", 0, 1, Action.SKIP),
        ("queue", 1, 0, Action.ENQUEUE_BEHIND),
        ("queue", 1, 1, Action.SKIP),
        ("queue", 0, 1, Action.SKIP),
        ("cancel_running", 1, 0, Action.REPLACE),
        ("cancel_running", 0, 1, Action.REPLACE),
        ("cancel_running", 2, 2, Action.REPLACE),
    ],
)
def test_with_an_unfinished_job_the_policy_decides(overlap: str, running: int, waiting: int, action: Action) -> None:
    assert decide(Overlap(overlap), Unfinished(running, waiting)) is action


@pytest.mark.parametrize(
    ("overlap", "running", "actions"),
    [
        ("allow", 1, [Action.ENQUEUE] * 3),
        ("skip", 0, [Action.ENQUEUE, Action.SKIP, Action.SKIP]),
        ("skip", 1, [Action.SKIP] * 3),
        ("queue", 0, [Action.ENQUEUE, Action.SKIP, Action.SKIP]),
        ("queue", 1, [Action.ENQUEUE_BEHIND, Action.SKIP, Action.SKIP]),
        ("cancel_running", 0, [Action.SKIP, Action.SKIP, Action.ENQUEUE]),
        ("cancel_running", 1, [Action.SKIP, Action.SKIP, Action.REPLACE]),
    ],
)
def test_several_fire_times_at_once_overlap_each_other(overlap: str, running: int, actions: list[Action]) -> None:
    decided = decide_all(Overlap(overlap), Unfinished(running), FIRES)
    assert decided == list(zip(FIRES, actions, strict=True))
    assert decide_all(Overlap(overlap), Unfinished(running), []) == []


@given(st.sampled_from(Overlap), st.integers(0, 3), st.integers(0, 3), st.integers(0, 5))
def test_each_fire_time_gets_one_decision_and_only_allow_piles_jobs_up(
    overlap: Overlap, running: int, waiting: int, count: int
) -> None:
    fire_times = [NOON + timedelta(hours=index) for index in range(count)]
    decided = decide_all(overlap, Unfinished(running, waiting), fire_times)
    assert [each for each, _ in decided] == fire_times
    enqueued = sum(action is not Action.SKIP for _, action in decided)
    assert enqueued == count if overlap is Overlap.ALLOW else enqueued <= 1


def test_jitter_is_the_same_on_every_pod_and_in_every_release() -> None:
    # A changed value would move jobs that are already enqueued elsewhere.
    assert jitter("daily-report", NOON, 600, None) == timedelta(microseconds=491158392)
    elsewhere = NOON.astimezone(utc("2026-08-01").astimezone().tzinfo)
    assert jitter("daily-report", elsewhere, timedelta(minutes=10), None) == jitter("daily-report", NOON, 600, None)


@given(
    st.text(max_size=20),
    st.integers(0, 10**9).map(lambda seconds: NOON + timedelta(seconds=seconds)),
    st.sampled_from([0, 0.000001, 0.5, 1, 60, 3600, 86_400, timedelta(days=30)]),
    st.none() | st.integers(1, 10**6).map(lambda seconds: timedelta(seconds=seconds)),
)
def test_jitter_stays_below_its_maximum_and_before_the_next_fire(
    name: str, scheduled_for: object, most: float | timedelta, period: timedelta | None
) -> None:
    assert isinstance(scheduled_for, type(NOON))
    next_fire = None if period is None else scheduled_for + period
    delay = jitter(name, scheduled_for, most, next_fire)
    assert timedelta(0) <= delay <= (most if isinstance(most, timedelta) else timedelta(seconds=most))
    assert period is None or delay < period
    assert delay == jitter(name, scheduled_for, most, next_fire)


def test_jitter_spreads_names_and_fire_times_evenly() -> None:
    by_name = [jitter(f"schedule-{index}", NOON, 10, None) for index in range(2000)]
    by_time = [jitter("schedule", NOON + timedelta(minutes=index), 10, None) for index in range(2000)]
    for delays in (by_name, by_time):
        slots = [sum(second <= each.total_seconds() < second + 1 for each in delays) for second in range(10)]
        assert sum(slots) == 2000
        assert min(slots) > 140


def test_no_jitter_without_a_maximum_or_without_room() -> None:
    assert jitter("x", NOON, 0, None) == timedelta(0)
    assert jitter("x", NOON, 60, NOON) == timedelta(0)
    assert jitter("\ud800", NOON, 60, None) < timedelta(seconds=60)


def test_a_negative_maximum_is_refused() -> None:
    with pytest.raises(ValueError, match="max_delay must be zero or more"):
        jitter("x", NOON, -1, None)
