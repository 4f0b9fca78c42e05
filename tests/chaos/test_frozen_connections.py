"""Half-open connections (case D02): no data and no error. The worker has to find out by itself."""

from __future__ import annotations

import time

import pytest

from tests.chaos.conftest import ArenaFactory
from tests.chaos.invariants import UNFINISHED

pytestmark = pytest.mark.chaos

HANDLERS = """
    SELECT count(*) FROM pg_stat_activity
     WHERE position('workload_effect' IN query) > 0 AND pid <> pg_backend_pid()
"""
LISTENERS = """
SELECT count(*) FROM pg_stat_activity WHERE application_name = 'reliable_jobs listener' AND backend_start > %s
"""


def test_connections_that_the_network_forgot_are_replaced_and_no_job_is_lost(arena: ArenaFactory) -> None:
    """A router forgets the connections of an otherwise undisturbed worker: new ones work, the old ones are deaf."""
    lease = 6.0
    with arena(pods=1, lease=lease, proxied=[0], settings={"POLL": 1.0}) as here:
        here.wait_for_fleet()
        here.produce("before", "slow", 4)
        here.wait_for_producers()
        here.wait("running handlers", here.runs)
        ((frozen_at,),) = here.query("SELECT clock_timestamp()")
        began = time.monotonic()
        with here.timeline.incident("connections frozen", "pod 0"):
            here.proxies[0].freeze(new=False)
            here.produce("during", "quick", 10)
            here.wait_for_producers()
            here.drain()
            took = time.monotonic() - began
            print(f"jobs of the gap were done {took:.2f} s after the connections froze (LEASE {lease:g} s, POLL 1 s)")
            here.wait("a new listener", lambda: here.query(LISTENERS, frozen_at) == [(1,)])
            print(f"the listener was back {time.monotonic() - began:.2f} s after the connections froze")
        here.proxies[0].cut()
    found = here.judge()
    # Only one worker was there, and it never lost touch for a whole lease.
    assert not [row for row in found.jobs if row.losses]


@pytest.mark.parametrize("kind", ["endless", "endless asking"])
def test_a_worker_cut_off_for_longer_than_its_lease_stops_its_handlers_and_others_take_over(
    arena: ArenaFactory, kind: str
) -> None:
    with arena(pods=2, lease=3, proxied=[0]) as here:
        here.wait_for_fleet()
        pod = here.fleet.pods[0]
        cut_off, other = (each.workers()[0] for each in here.fleet.pods)
        held = here.occupy(here.fleet.pods[0], kind, 6)
        # Handlers that are just connecting have the time limit that the project gives them.
        here.wait("all to be connected", lambda: kind == "endless" or here.query(HANDLERS) == [(6,)])
        with here.timeline.incident("connections frozen", "pod 0", {cut_off}), here.proxies[0].frozen():
            frozen = time.monotonic()
            stopped = here.wait("the cut-off handlers to stop", lambda: not here.runs(cut_off))
            taken = here.wait_for_restarts(held, frozen)
            assert stopped < 9, "connecting anew may take ten seconds; the handlers must not wait for that"
            print(f"LEASE 3 s: handlers had stopped after {stopped:.2f} s, others had the jobs after {taken:.2f} s")
        assert {job for job, _ in here.runs(other)} == {job for job, _ in held}
        thawed = time.monotonic()
        here.produce("after", "quick", 200, seconds=15)
        # Or its successor: a process that has stopped so many handlers is replaced when it is idle.
        here.wait(
            "the thawed pod to run jobs",
            lambda: any(e["pid"] in (cut_off, *pod.workers()) and e["mono"] > thawed for e in here.events("start")),
        )
        here.wait_for_producers()
    found = here.judge(UNFINISHED)
    # A handler that waits for an answer is freed too; it does not cost its slot.
    assert not [line for line in found.logs if "written off" in line]


def test_what_an_atomic_job_does_after_its_commit_is_not_stopped_for_a_lost_lease(arena: ArenaFactory) -> None:
    """The row is settled: there is no lease left to lose, and whoever stops the callbacks loses their work."""
    with arena(pods=1, lease=3, proxied=[0]) as here:
        here.wait_for_fleet()
        here.produce("p", "lingering", 4)
        here.wait_for_producers()
        here.wait("four callbacks", lambda: len(here.events("callback begins")) == 4)
        with here.timeline.incident("connections frozen", "pod 0"), here.proxies[0].frozen():
            here.wait("the callbacks to end", lambda: len(here.events("callback ends")) == 4, 30)
        here.drain()
    here.judge()
