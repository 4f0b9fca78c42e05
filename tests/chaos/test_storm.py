"""Everything at once: the proof that a crashing fleet loses nothing and does nothing twice."""

from __future__ import annotations

import os
import time

import pytest

from tests.chaos.conftest import ArenaFactory
from tests.chaos.nemesis import make_plan
from tests.chaos.report import describe_state

#: CHAOS_SECONDS=600 is a storm of ten minutes.
SECONDS = float(os.environ.get("CHAOS_SECONDS", "45"))
JOBS = int(5000 * SECONDS / 45)

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600 + 3 * SECONDS)]

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
    "read only": 1,
    "rights lost": 1,
    "poison rows": 2,
    "logging storm": 2,
    "freeze threads": 1,
}
#: Minutes between the first and the last fire time that have no run.
MISSED = """
WITH taken AS (SELECT scheduled_for, coalesce(skipped_through, scheduled_for) AS through
                 FROM django_reliable_jobs_cronrun WHERE name = %s)
SELECT minute FROM generate_series((SELECT min(scheduled_for) FROM taken), (SELECT max(through) FROM taken),
                                   interval '1 minute') AS minute
 WHERE NOT EXISTS (SELECT FROM taken WHERE minute BETWEEN scheduled_for AND through)
"""
SCHEDULE = "in a zone that not every host knows"
MAKE_SCHEDULE = f"""
from django_reliable_jobs.control.schedules import save_schedule
save_schedule({SCHEDULE!r}, "workload.scheduled", "* * * * *", timezone="America/New_York")
"""


def test_a_crashing_fleet_runs_every_job_to_its_end_exactly_once(arena: ArenaFactory) -> None:
    with arena(pods=6, lease=LEASE, proxied=(4, 5), least=(3,), zoneless=(2,)) as here:
        here.wait_for_fleet()
        here.manage("shell", "-c", MAKE_SCHEDULE)
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
        [(broken,)] = here.query("SELECT broken FROM django_reliable_jobs_cronschedule WHERE name = %s", SCHEDULE)
        lost = here.query(MISSED, SCHEDULE)
    found = here.judge()
    print(here.timeline.describe())
    print(describe_state(found))
    print(
        f"{drained:.1f} s to drain, {recovered:.1f} s until all that ran had a living owner,"
        f" {time.monotonic() - here.timeline.began:.1f} s in all"
    )
    assert broken == "", "a host without zones has spoken for all"
    assert lost == [], "fire times that nobody took"
    assert sum(1 for row in found.jobs if row.status == "DONE") > JOBS * 0.9
    assert any(attempt.reason == "lost" for attempt in found.attempts), "the nemesis never hit a running job"
