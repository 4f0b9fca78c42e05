"""LeaseLost hits the function whose lease it is, and nothing that the thread does before or after it.

The loss and the end of the function are made to meet, many times, at the places where they could get in each other's
way: the keeper's thread is the test's, and the lease is one that needs no store.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from django_reliable_jobs.errors import DeadlineExceeded, LeaseLost
from django_reliable_jobs.guards import runs
from django_reliable_jobs.guards.lease import GuardLease, current_lease
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.running.context import JobContext, run_in_context
from django_reliable_jobs.running.interrupt import Target
from django_reliable_jobs.values.lease import Lease

ROUNDS = 500


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def work(amount: int) -> int:
    total = 0
    for number in range(amount):
        total += number
    return total


class Rival(threading.Thread):
    """Does something to each round's target, a moment after it is given one."""

    def __init__(self, act: Any) -> None:
        super().__init__(daemon=True)
        self.act = act
        self.rounds: list[Any] = []
        self.more = threading.Semaphore(0)

    def give(self, *what: Any) -> None:
        self.rounds.append(what)
        self.more.release()

    def run(self) -> None:
        while True:
            self.more.acquire()
            what = self.rounds.pop(0)
            if what == (None,):
                return
            work(random.randrange(400))
            self.act(*what)


def lose(target: Target, lease: GuardLease) -> None:
    lease.lost.set()
    runs._interrupt(target, lease)


def test_a_loss_at_any_moment_is_raised_inside_or_not_at_all() -> None:
    rival = Rival(lose)
    rival.start()
    raised = 0
    for number in range(ROUNDS):
        target, lease = Target(), GuardLease("k", number + 1)
        rival.give(target, lease)
        try:
            runs._call(target, lease, work, [random.randrange(8000)], {})
        except LeaseLost:
            raised += 1
        # From here on nothing may come: an exception that does ends the test.
        work(50)
        assert current_lease() is None
    rival.give(None)
    rival.join()
    work(1000)
    assert ROUNDS * 0.02 < raised < ROUNDS * 0.98, f"the moments were not mixed: {raised}"


def test_a_job_that_is_told_to_stop_meanwhile_is_not_forgotten() -> None:
    """The deadline of the job and the loss of the guard's lease come together: the job's has to arrive."""

    def stop_both(job_target: Target, attempt: Attempt, target: Target, lease: GuardLease) -> None:
        acts = [lambda: lose(target, lease), lambda: attempt.stop(DeadlineExceeded)]
        random.shuffle(acts)
        for act in acts:
            act()
            work(random.randrange(50))

    rival = Rival(stop_both)
    rival.start()
    for number in range(ROUNDS):
        attempt, stopped = Attempt(LEASE), threading.Event()
        job_target, target, lease = Target(), Target(), GuardLease("k", number + 1)

        def on_stop(
            which: Attempt, kind: Any, job_target: Target = job_target, stopped: threading.Event = stopped
        ) -> None:
            with job_target.held(which) as running:
                if running:
                    job_target.interrupt(which, kind)
            stopped.set()

        attempt.on_stop = on_stop
        context = JobContext(attempt, None)
        arrived = False
        try:
            job_target.arm(attempt)
            rival.give(job_target, attempt, target, lease)
            try:
                run_in_context(
                    context,
                    lambda target=target, lease=lease: runs._call(target, lease, work, [random.randrange(8000)], {}),
                )
            except LeaseLost:
                pass
            while not stopped.is_set():  # the rest of the job
                work(10)
            work(1000)
        except DeadlineExceeded:
            arrived = True
        finally:
            try:
                job_target.disarm()
            except DeadlineExceeded:  # told by `check()` in the same moment
                job_target.disarm()
        assert arrived, f"the deadline of round {number} was lost on the way"
        assert stopped.wait(60)
    rival.give(None)
    rival.join()


LEASE = Lease(
    job_id=1, token=1, name="j", queue="q", priority=0, args="[]", kwargs="{}", attempt=1, max_attempts=1, losses=0,
    timeout=None, idempotency_key=None, scheduled_for=None, run_at=None,  # type: ignore[arg-type]
)  # fmt: skip


def test_without_a_loss_a_signal_for_the_code_around_passes_through() -> None:
    attempt, target, lease = Attempt(LEASE), Target(), GuardLease("k", 1)
    attempt.stop(DeadlineExceeded)
    with pytest.raises(DeadlineExceeded):
        runs._call(target, lease, attempt.check, [], {})
    assert not lease.told
