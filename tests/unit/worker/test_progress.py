"""What is counted as standing still, and what is not (case P02)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from django_reliable_jobs.worker.leases.progress import ProgressWatch
from django_reliable_jobs.worker.processes import process_watch
from django_reliable_jobs.worker.processes.process_watch import ProcessWatch, is_stopped
from django_reliable_jobs.worker.shared_state import ENGINE, MAIN, MAINTENANCE, WATCHDOG, SharedState
from tests.support.fleet import wait_until

PARTS = (MAIN, ENGINE, WATCHDOG, MAINTENANCE)


class Clock:
    """Moves when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Worker:
    """Its parts move when they are told to."""

    def __init__(self, clock: Clock, lease: float = 30, heartbeat: float = 10) -> None:
        self.clock, self.heartbeat = clock, heartbeat
        self.shared = SharedState(4)
        for part in PARTS:
            self.shared._part_of[-part] = part
            self.shared.running.add(part)
        self.progress = ProgressWatch(self.shared, lease, heartbeat)
        self.ended: str | None = None

    def move(self, *parts: int) -> None:
        for part in parts or PARTS:
            self.shared.moved(-part)

    def beat(self, after: float | None = None) -> bool:
        """Whether it may extend its leases."""
        self.clock.now += self.heartbeat if after is None else after
        look = self.progress.look()
        self.ended = self.ended or self.progress.went_through(look)
        return look.may_extend


def test_leases_are_extended_while_engine_and_watchdog_have_moved_since_the_beat_before_last(clock: Clock) -> None:
    worker = Worker(clock)
    for _ in range(10):
        worker.move()
        assert worker.beat()
        assert worker.beat()
    assert worker.ended is None


@pytest.mark.parametrize(("part", "name"), [(ENGINE, "engine"), (WATCHDOG, "watchdog")])
def test_of_a_part_that_stands_still_no_lease_is_extended_any_more_and_soon_the_process_ends(
    clock: Clock, part: int, name: str
) -> None:
    worker = Worker(clock)
    worker.move()
    extended = [worker.beat()]
    while worker.ended is None:
        worker.move(*(other for other in PARTS if other != part))
        extended.append(worker.beat())
    assert extended == [True, True, False, False]
    assert worker.ended == f"its {name} thread has not moved during 3 heartbeats"


def test_it_takes_as_many_beats_as_fit_into_a_lease(clock: Clock) -> None:
    worker, beats = Worker(clock, lease=30, heartbeat=3), 0
    worker.move()
    worker.beat()
    while worker.ended is None:
        beats += 1
        worker.beat()
    assert beats == 10


def test_beats_in_quick_succession_are_no_proof(clock: Clock) -> None:
    """Somebody cancels one job after the other, and each brings a beat."""
    worker = Worker(clock)
    worker.move()
    for _ in range(200):
        assert worker.beat(after=0.01)
    assert worker.ended is None


def test_beats_that_do_not_go_through_do_not_count(clock: Clock) -> None:
    """An outage of five minutes."""
    worker = Worker(clock)
    worker.move()
    worker.beat()
    for _ in range(30):
        clock.now += 10
        assert worker.progress.look().may_extend
    assert worker.beat()
    assert worker.ended is None


def test_a_process_that_was_stopped_or_suspended_for_an_hour_has_missed_no_beat(clock: Clock) -> None:
    worker = Worker(clock)
    worker.move()
    worker.beat()
    for _ in range(5):
        assert worker.beat(after=3600)  # the heartbeat happens to be the first to go on
        worker.move()
    assert worker.ended is None


def test_maintenance_may_compute_for_longer_than_the_others(clock: Clock) -> None:
    worker, beats = Worker(clock), 0
    worker.move()
    worker.beat()
    while worker.ended is None:
        beats += 1
        worker.move(MAIN, ENGINE, WATCHDOG)
        assert worker.beat()
    assert beats == 30
    assert "maintenance" in worker.ended


def test_a_part_that_has_come_to_its_end_is_not_waited_for(clock: Clock) -> None:
    worker = Worker(clock)
    for _ in range(10):
        worker.shared.running.discard(ENGINE)
        worker.move(MAIN, WATCHDOG, MAINTENANCE)
        assert worker.beat()
    assert worker.ended is None


# -- the supervisor's look


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_watch, "is_stopped", lambda pid: False)


def watched(clock: Clock, shared: SharedState, lease: float = 30) -> ProcessWatch:
    shared._part_of.update({part: part for part in PARTS})
    for part in PARTS:
        shared.moved(part)
    watch = ProcessWatch(shared, lease)
    assert watch.look(1) is None
    return watch


def test_a_process_is_ended_when_none_of_its_counters_has_moved_in_a_lease_of_rounds(
    clock: Clock, running: None
) -> None:
    shared = SharedState(4)
    watch, rounds = watched(clock, shared), 0
    shared.begin(7, 4711)
    found = None
    while found is None:
        rounds += 1
        clock.now += 1
        found = watch.look(1)
    assert rounds == 30
    assert "nothing in it has moved for 30 s" in found
    assert "#4711" in found


def test_a_host_that_was_suspended_and_a_supervisor_that_was_stopped_count_one_round(
    clock: Clock, running: None
) -> None:
    watch = watched(clock, SharedState(4))
    for _ in range(20):
        clock.now += 3600
        assert watch.look(1) is None


def test_one_part_that_moves_is_enough_unless_it_is_the_watchdog_that_does_not(clock: Clock, running: None) -> None:
    shared = SharedState(4)
    watch = watched(clock, shared)
    for _ in range(200):
        clock.now += 1
        shared.moved(WATCHDOG)
        assert watch.look(1) is None
    rounds, found = 0, None
    while found is None:
        rounds += 1
        clock.now += 1
        shared.moved(ENGINE)
        found = watch.look(1)
    assert rounds == 90
    assert "its watchdog has not moved" in found


def test_a_process_that_only_starts_is_not_judged(clock: Clock, running: None) -> None:
    """It may wait for its tables for minutes."""
    watch = ProcessWatch(SharedState(4), 30)
    for _ in range(1000):
        clock.now += 1
        assert watch.look(1) is None


def test_the_kernel_says_whether_a_process_is_stopped() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        assert not is_stopped(process.pid)
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(process.pid), "the stop")
        os.kill(process.pid, signal.SIGCONT)
        wait_until(lambda: not is_stopped(process.pid), "the continuation")
    finally:
        process.kill()
        process.wait()


# -- which jobs have begun


def test_what_has_begun_is_known_until_it_is_recorded_after_the_process_is_dead_too() -> None:
    shared = SharedState(4)
    pid = os.fork()
    if pid == 0:
        cells = {token: shared.begin(token, 100 + token) for token in (2**62, 2, 3)}
        shared.recorded(cells[2] or 0)
        shared.begin(4, 104)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert shared.begun() == {2**62: 100 + 2**62, 3: 103, 4: 104}


def test_where_there_is_no_room_for_all_that_have_begun_nothing_is_known() -> None:
    shared = SharedState(2)
    kept = [shared.begin(token, token) for token in (1, 2)]
    assert shared.begun() == {1: 1, 2: 2}
    assert shared.begin(3, 3) is None
    assert shared.begun() is None
    shared.recorded(kept[0] or 0)
    assert shared.begun() is None


def test_many_threads_begin_and_record_at_the_same_time() -> None:
    shared, kept = SharedState(8), {}

    def work(number: int) -> None:
        for n in range(2000):
            at = shared.begin(number * 10_000 + n, n)
            assert at is not None
            shared.recorded(at)
        kept[number] = shared.begin(number, number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert shared.begun() == {number: number for number in range(1, 9)}
    assert len(set(kept.values())) == 8
