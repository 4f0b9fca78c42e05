"""Everything at once: the proof that a crashing fleet loses nothing and does nothing twice."""

from __future__ import annotations

import time

import pytest

from tests.chaos.conftest import ArenaFactory
from tests.chaos.nemesis import make_plan
from tests.chaos.report import describe_state

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]

JOBS = 5000
SECONDS = 40.0
LEASE = 3.0
#: What a busy machine may need beyond one lease, in seconds.
BUSY = 15.0
#: Every fault happens at least once; these say which ones happen again.
WEIGHTS = {
    "kill worker": 4,
    "kill pod": 3,
    "kill supervisor": 1,
    "stop worker": 5,
    "terminate backends": 2,
    "restart postgres": 1,
    "outage": 1,
    "cut connections": 2,
    "freeze connections": 2,
    "slow network": 1,
}


def test_a_crashing_fleet_runs_every_job_to_its_end_exactly_once(arena: ArenaFactory) -> None:
    with arena(pods=6, lease=LEASE, proxied=(4, 5)) as here:
        here.wait_for_fleet()
        for name in ("p0", "p1"):
            here.produce(name, "storm", JOBS // 2, SECONDS * 0.9)
        nemesis = here.inject(make_plan(here.seed, SECONDS, WEIGHTS, (0.6, 2.4)))
        here.wait_for_producers(180)
        nemesis.join()
        # The last word is a crash of half of the fleet in the middle of work, with nobody to take its place.
        here.produce("last", "long", 160)
        here.wait_until_running(16)
        for pod in here.fleet.pods[:3]:
            pod.respawn = False
            here.fleet.kill_pod(pod)
        recovered = here.wait_for_living_owners(LEASE + BUSY)
        here.wait_for_producers(180)
        drained = here.drain(180)
    found = here.judge()
    print(here.timeline.describe())
    print(describe_state(found))
    print(
        f"{drained:.1f} s to drain, {recovered:.1f} s until all that ran had a living owner,"
        f" {time.monotonic() - here.timeline.began:.1f} s in all"
    )
    assert sum(1 for row in found.jobs if row.status == "DONE") > JOBS * 0.9
    assert any(attempt.reason == "lost" for attempt in found.attempts), "the nemesis never hit a running job"
