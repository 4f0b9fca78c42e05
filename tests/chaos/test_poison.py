"""Jobs that kill their workers, and workers that die under their jobs: starts never exceed `max_attempts`."""

from __future__ import annotations

import pytest

from tests.chaos.conftest import ArenaFactory
from tests.chaos.nemesis import make_plan

pytestmark = pytest.mark.chaos


def test_a_job_that_kills_its_process_is_dead_after_its_attempts_and_the_others_are_done(arena: ArenaFactory) -> None:
    with arena(pods=1, lease=3) as here:
        here.crashes_only = True
        here.wait_for_fleet()
        here.produce("bystanders", "slow", 16)
        here.produce("poison", "deadly", 2)
        here.wait_for_producers()
        here.drain(120)
    found = here.judge()
    deadly = [row for row in found.jobs if row.name == "workload.deadly"]
    assert [row.status for row in deadly] == ["DEAD", "DEAD"]
    # With its worker, or in a child of its own once it was suspected.
    assert {row.reason for row in deadly} <= {"lost", "attempts used up"}
    starts = [event for event in found.history if event["event"] == "start" and event["kind"] == "workload.deadly"]
    assert len(starts) <= 6


@pytest.mark.slow
def test_crashes_alone_never_start_a_job_more_often_than_it_has_attempts(arena: ArenaFactory) -> None:
    with arena(pods=3, lease=3) as here:
        here.crashes_only = True
        here.wait_for_fleet()
        here.produce("p0", "brittle", 400, seconds=15)
        here.inject(make_plan(here.seed, 15, {"kill worker": 3, "kill pod": 1}, (0.3, 1.0))).join()
        here.wait_for_producers()
        here.drain(120)
    found = here.judge()
    assert any(row.losses for row in found.jobs), "the nemesis never hit a running job"
