"""A worker was stopped for longer than its lease: its jobs run elsewhere, and what it says afterwards is refused."""

from __future__ import annotations

import os
import signal

import pytest

from tests.chaos.conftest import ArenaFactory

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("kind", ["slow", "slow atomic", "steps"])
def test_a_stalled_worker_that_wakes_up_changes_nothing_and_counts_what_was_refused(
    arena: ArenaFactory, kind: str
) -> None:
    with arena(pods=2, lease=3) as here:
        here.wait_for_fleet()
        here.produce("p", kind, 16)
        stalled, other = (pod.workers()[0] for pod in here.fleet.pods)
        here.wait("both workers to be at work", lambda: here.runs(stalled) and here.runs(other))
        with here.timeline.incident("SIGSTOP", "pod 0", {stalled}):
            os.kill(stalled, signal.SIGSTOP)
            held = here.runs(stalled)
            here.wait_for_producers()
            # One that is stopped within a step's transaction keeps its checkpoint locked for its timeout and the grace time.
            here.drain(150 if kind == "steps" else 60)
            os.kill(stalled, signal.SIGCONT)
        here.wait("the stalled handlers to end", lambda: not here.runs(stalled))
        # Orderly, so that the worker says how many outcomes it has counted as refused.
        statuses = here.fleet.stop()
    assert set(statuses.values()) == {0}
    found = here.judge()
    refused = {(refusal.job, refusal.token) for refusal in found.refusals if refusal.pid == stalled}
    assert held, "the worker was stopped between two jobs"
    # What had ended when the process was stopped, but was not settled yet, was refused as well.
    assert refused >= held.keys()
    assert found.counted[stalled] == len(refused)
    # What it held ahead and had not begun was lost with its leases too, and has no outcome that could be refused, unless it
    # began, and was refused at once, when the process woke up.
    begun = {event["job"] for event in found.history if event["event"] == "start" and event["pid"] == stalled}
    lost = {row.id for row in found.jobs if row.losses}
    assert lost & begun <= {job for job, _ in refused} <= lost
