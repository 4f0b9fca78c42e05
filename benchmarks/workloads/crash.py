"""A worker is killed with SIGKILL in the middle of its jobs: when do those that were running run again?"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator

from benchmarks import marks
from benchmarks.machine import family
from benchmarks.stage import RunFailed, Stage
from benchmarks.workloads import Record, Scale, repetitions

KILL_AFTER = 1.2  # seconds, or a third of the jobs, whichever comes first
LOOK = 0.02  # seconds


def worker_killed(stage: Stage, scale: Scale) -> Iterator[Record]:
    """The process that runs the jobs dies, its supervisor lives."""
    yield from repetitions(scale, lambda _: _crash(stage, scale, supervisor_too=False))


def tree_killed(stage: Stage, scale: Scale) -> Iterator[Record]:
    """All of it dies, as with its host; another worker starts at once."""
    yield from repetitions(scale, lambda _: _crash(stage, scale, supervisor_too=True))


def _crash(stage: Stage, scale: Scale, *, supervisor_too: bool) -> Record:
    with stage.fresh():
        stage.child("fill", scale.naps, 0, "nap")
        leader = stage.start_worker()
        stage.wait_for_first_mark()
        stage.wait(lambda: stage.marked() >= 2 * scale.naps // 3, KILL_AFTER)
        time.sleep(random.uniform(0, marks.NAP))
        killed_at = time.time()
        if supervisor_too:
            stage.kill_workers()
        else:
            _kill_children(leader)
        before = marks.read(stage.marks)
        began, ended = ({m.number for m in before if m.kind == kind} for kind in (marks.BEGIN, marks.END))
        in_flight, old = began - ended, {m.pid for m in before}
        if supervisor_too:
            stage.start_worker()
        again: dict[int, float] = {}
        finished: set[int] = set()

        def recovered() -> bool:
            found = marks.read(stage.marks)
            for mark in found:
                if mark.pid not in old and mark.kind == marks.BEGIN and mark.number in in_flight:
                    again.setdefault(mark.number, mark.at)
            finished.update(mark.number for mark in found if mark.kind == marks.END)
            return len(finished) == scale.naps and len(again) == len(in_flight)

        complete = stage.wait(recovered, scale.crash_patience, LOOK)
        starts = [mark.number for mark in marks.read(stage.marks) if mark.kind == marks.BEGIN]
    return {
        "jobs": scale.naps,
        "complete": complete,
        "in_flight": len(in_flight),
        "first_again": min(again.values()) - killed_at if again else None,
        "all_again": max(again.values()) - killed_at if len(again) == len(in_flight) and again else None,
        "unfinished": scale.naps - len(finished),
        "finished_and_run_again": sum(starts.count(number) > 1 for number in ended),
    }


def _kill_children(leader: int) -> None:
    children = [process for process in family([leader]) if process.pid != leader]
    if not children:
        raise RunFailed("the worker has no process below it that could be killed")
    for process in children:
        os.kill(process.pid, signal.SIGKILL)
