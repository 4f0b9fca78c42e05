"""How long a crash costs, with the default lease: it is measured, printed, and bounded by the contract."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import Any

import pytest

from tests.chaos.arena import Arena
from tests.chaos.conftest import ArenaFactory
from tests.chaos.fleet import Pod
from tests.chaos.invariants import COMPLAINTS, UNFINISHED

pytestmark = pytest.mark.chaos

LEASE, HEARTBEAT, POLL = 30.0, 10.0, 1.0
DEFAULT: dict[str, Any] = {"LEASE": LEASE, "HEARTBEAT": HEARTBEAT, "POLL": POLL}
WORKERS = "SELECT id FROM django_reliable_jobs_worker"


def load(here: Arena, kind: str, jobs: int, running: int) -> None:
    here.wait_for_fleet()
    here.produce("p", kind, jobs)
    here.wait_for_producers()
    here.wait(f"{running} running handlers", lambda: len(here.runs()) >= running)


@pytest.mark.slow
def test_jobs_of_a_machine_that_died_run_elsewhere_after_one_lease(arena: ArenaFactory) -> None:
    with arena(pods=2, lease=LEASE, settings=DEFAULT, respawn=False) as here:
        here.wait_for_fleet()
        dead = here.fleet.pods[0]
        held = here.occupy(dead, "endless", 8)
        killed = time.monotonic()
        with here.timeline.incident("SIGKILL to a pod", str(dead), dead.processes()):
            here.fleet.kill_pod(dead)
        took = here.wait_for_restarts(held, killed)
        print(f"a pod was killed, {len(held)} jobs ran again on the other one after {took:.2f} s (LEASE {LEASE:g} s)")
        assert took < LEASE + POLL + 1
    here.judge(UNFINISHED)


@pytest.mark.slow
def test_jobs_of_the_only_machine_run_again_when_their_leases_are_over(arena: ArenaFactory) -> None:
    with arena(pods=1, lease=LEASE, settings=DEFAULT) as here:
        load(here, "endless", 8, 8)
        (pod,) = here.fleet.pods
        held, workers = here.runs(), set(here.query(WORKERS))
        killed = time.monotonic()
        with here.timeline.incident("SIGKILL to a pod", str(pod), pod.processes()):
            here.fleet.kill_pod(pod)
        here.wait("another worker", lambda: set(here.query(WORKERS)) - workers)
        back = time.monotonic() - killed
        took = here.wait_for_restarts(held, killed)
        print(
            f"the only pod was killed, back after {back:.2f} s, {len(held)} jobs ran again after {took:.2f} s (LEASE {LEASE:g} s)"
        )
        # Their last heartbeat was at most HEARTBEAT before the kill. Whoever is back within half a LEASE of that reaps them when
        # they run out; on a machine that is too busy for that, one LEASE after it is back.
        assert took < LEASE + POLL + 1 + (0 if back < LEASE / 2 - HEARTBEAT else back)
    here.judge(UNFINISHED)


def test_jobs_of_a_dead_worker_run_again_at_once_where_its_supervisor_lives(arena: ArenaFactory) -> None:
    with arena(pods=1, lease=LEASE, settings=DEFAULT, respawn=False) as here:
        load(here, "endless", 8, 8)
        (pod,) = here.fleet.pods
        for round_ in (1, 2):
            (worker,) = pod.workers()
            held = here.runs(worker)
            assert len(held) == 8
            killed = time.monotonic()
            with here.timeline.incident("SIGKILL to a worker", str(pod), {worker}):
                here.fleet.kill(worker)
            took = here.wait_for_restarts(held, killed)
            print(f"loss {round_}: 8 jobs of a killed worker ran again after {took:.2f} s (LEASE {LEASE:g} s)")
            assert took < LEASE / 2
        losses = here.query("SELECT losses, attempts FROM django_reliable_jobs_job")
        assert losses == [(2, 3)] * 8
    here.judge(UNFINISHED)


def test_a_successor_that_dies_at_once_leaves_the_leases_to_the_next_one(arena: ArenaFactory) -> None:
    with arena(pods=1, lease=LEASE, settings=DEFAULT, respawn=False) as here:
        load(here, "endless", 8, 8)
        (pod,) = here.fleet.pods
        (worker,) = pod.workers()
        held = here.runs(worker)
        killed = time.monotonic()
        with here.timeline.incident("SIGKILL to a worker and to its successor", str(pod)):
            here.fleet.kill(worker)
            here.wait("a successor", lambda: pod.children() not in ([], [worker]), pause=0.0005)
            for successor in pod.children():
                here.fleet.kill(successor)
        took = here.wait_for_restarts(held, killed)
        print(f"8 jobs of a killed worker ran again after {took:.2f} s, though its successor was killed too")
        assert took < LEASE / 2
    here.judge(UNFINISHED)


def test_what_keeps_schedules_from_firing_does_not_keep_leases_from_being_reaped(arena: ArenaFactory) -> None:
    with arena(pods=1, lease=3) as here:
        load(here, "endless", 8, 8)
        here.execute("ALTER TABLE django_reliable_jobs_cronschedule RENAME TO out_of_reach")
        (pod,) = here.fleet.pods
        held = here.runs()
        killed = time.monotonic()
        with here.timeline.incident("SIGKILL to a pod", str(pod), pod.processes()):
            here.fleet.kill_pod(pod)
        here.wait_for_restarts(held, killed)
    here.judge(UNFINISHED, COMPLAINTS)


@pytest.mark.parametrize("grace", [0, 1])
def test_an_orderly_stop_gives_everything_back_and_uses_no_attempt(arena: ArenaFactory, grace: int) -> None:
    options = ["--grace", str(grace)]
    with arena(pods=2, lease=LEASE, settings=DEFAULT, respawn=False, options=options) as here:
        load(here, "endless", 24, 16)
        leaving, staying = here.fleet.pods
        here.fleet.pods[1].signal(signal.SIGSTOP)  # only its supervisor; it must not matter
        held = here.runs(leaving.workers()[0])
        assert len(held) == 8
        # Nobody may take them before we have looked.
        os.kill(staying.workers()[0], signal.SIGSTOP)
        told = time.monotonic()
        leaving.signal(signal.SIGTERM)
        ids = [job for job, _ in held]
        mine = "SELECT status, attempts, losses FROM django_reliable_jobs_job WHERE id = ANY (%s)"
        here.wait("the jobs to be given back", lambda: {row[0] for row in here.query(mine, ids)} == {"QUEUED"})
        took = time.monotonic() - told
        assert here.query(mine, ids) == [("QUEUED", 0, 0)] * 8
        assert leaving.process is not None
        assert leaving.process.wait(30) == 0
        exited = time.monotonic() - told
        print(f"grace {grace} s: 8 running jobs were given back in {took:.2f} s, the pod ended in {exited:.2f} s")
        assert took < grace + LEASE / 4
        for process in (staying.pid, *staying.workers()):
            os.kill(process, signal.SIGCONT)
    here.judge(UNFINISHED)


def test_an_orderly_stop_under_load_wastes_no_attempt(arena: ArenaFactory) -> None:
    with arena(pods=2, lease=LEASE, settings=DEFAULT) as here:
        here.wait_for_fleet()
        here.produce("p", "quick", 3000)
        for goal, pod in enumerate(here.fleet.pods * 2, start=1):
            here.wait("more jobs to be done", partial(has_ended, here, 500 * goal))
            before = pod.pid
            pod.signal(signal.SIGTERM)
            here.wait("the pod to be replaced", partial(was_replaced, pod, before))
        here.wait_for_producers()
        here.drain()
    found = here.judge()
    assert {row.attempts for row in found.jobs} == {1}
    assert not found.attempts
    assert not found.refusals


def has_ended(here: Arena, handlers: int) -> bool:
    return len(here.events("end")) >= handlers


def was_replaced(pod: Pod, before: int) -> bool:
    return pod.running and pod.pid != before
