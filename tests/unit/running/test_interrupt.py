"""An exception from outside hits the work it is meant for, or nothing."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from django_reliable_jobs.errors import DeadlineExceeded, StopHandler
from django_reliable_jobs.running.interrupt import Target


class Work:
    told = False


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that are switched after almost every step, so that a second finds what would take days."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def work_once(target: Target, work: Work) -> str:
    """As a slot does it: armed, worked, disarmed, and disarmed again if that was hit."""
    came = "ended"
    try:
        target.arm(work)
        for _ in range(20):
            pass
        target.disarm()
    except StopHandler:
        came = "hit"
        target.disarm()
    return came


def test_no_exception_gets_past_the_end_of_the_work(hasty_threads: None) -> None:
    target, current, counts, stop = Target(), [Work()], Counter[str](), threading.Event()

    def slot() -> None:
        while not stop.is_set():
            try:
                current[0] = work = Work()
                counts[work_once(target, work)] += 1
                sum(range(50))  # what a slot does between two attempts
            except BaseException as error:
                counts[f"escaped: {error!r}"] += 1

    def interrupt() -> None:
        while not stop.is_set():
            work = current[0]
            if not work.told:
                with target.held(work) as running:
                    if running:
                        target.interrupt(work, DeadlineExceeded)

    threads = [threading.Thread(target=slot), threading.Thread(target=interrupt)]
    for thread in threads:
        thread.start()
    time.sleep(3)  # for how long it is tried
    stop.set()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads), "somebody holds the lock for ever"
    assert not [what for what in counts if what.startswith("escaped")], counts
    assert counts["ended"] > 100
    assert counts["hit"] > 0


def spin(until: float) -> None:
    """A frame of its own: since Python 3.12 what is raised where a loop goes back misses a `try` around that loop."""
    while time.monotonic() < until:
        pass


def test_a_work_is_hit_at_most_once() -> None:
    target, work, hits = Target(), Work(), 0
    go = threading.Event()

    def run() -> None:
        nonlocal hits
        target.arm(work)
        until = time.monotonic() + 0.5
        while True:
            try:
                go.set()
                spin(until)
                break
            except StopHandler:
                hits += 1
        target.disarm()

    thread = threading.Thread(target=run)
    thread.start()
    go.wait()
    while thread.is_alive():
        with target.held(work) as running:
            if running:
                target.interrupt(work, DeadlineExceeded)
    assert hits == 1


def test_what_is_over_cannot_be_held() -> None:
    target, work = Target(), Work()
    target.arm(work)
    with target.held(work) as running:
        assert running
    target.disarm()
    with target.held(work) as running:
        assert not running


def test_a_lock_that_an_exception_left_acquired_is_released() -> None:
    """As it can happen since Python 3.14, between the acquire and the block that would release it."""
    target, work = Target(), Work()
    target.arm(work)
    work.told = True
    target._lock.acquire()
    target.disarm()
    free: list[bool] = []
    thread = threading.Thread(target=lambda: free.append(target._lock.acquire(timeout=5)))
    thread.start()
    thread.join()
    assert free == [True]
