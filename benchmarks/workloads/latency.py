"""An idle worker: how soon it begins a job, and what it costs to wait."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from benchmarks import machine, marks
from benchmarks.stage import RunFailed, Stage
from benchmarks.usage import Usage
from benchmarks.workloads import Record, Scale, repetitions


def pickup(stage: Stage, scale: Scale) -> Iterator[Record]:
    """Milliseconds from the return of a single enqueue to the start of its handler, at irregular distances.

    Slightly negative when the worker was faster than the client's own way back.
    """

    def measure(number: int) -> Record:
        with stage.fresh():
            _wake_up(stage, scale.calm)
            begin = Usage(stage)
            enqueued = stage.child("trickle", scale.trickled, number)
            complete = stage.wait_for_marks(scale.trickled + 1, 30.0)
            other_cpus = Usage(stage).others(begin)
            began: dict[int, float] = {}
            for mark in marks.read(stage.marks):
                began.setdefault(mark.number, mark.at)
        late = sorted((began[n] - after) * 1000 for n, _, after in enqueued if n in began)
        if not late:
            raise RunFailed(f"{stage.variant.label}: the worker took none of the jobs")
        calls = sorted((after - before) * 1000 for _, before, after in enqueued)
        return {
            "jobs": scale.trickled, "complete": complete, "p50": at(late, 0.5), "p95": at(late, 0.95),
            "p99": at(late, 0.99), "worst": late[-1], "call_p50": at(calls, 0.5), "other_cpus": other_cpus,
        }  # fmt: skip

    yield from repetitions(scale, measure)


def idle(stage: Stage, scale: Scale) -> Iterator[Record]:
    """CPU-seconds a second of an idle worker and of the database, and the statements a second that it sends.

    The statements are counted in the server's log, which is on for this run only, and whose cost is in the database's CPU.
    """

    def measure(_: int) -> Record:
        with stage.fresh():
            stage.server.log_statements(stage.database, True)
            _wake_up(stage, scale.calm)
            worker, server = machine.fine_cpu(stage.workers), stage.server.fine_cpu()
            statements, began = stage.server.statements_logged(), time.monotonic()
            time.sleep(scale.idle)
            seconds = time.monotonic() - began
            return {
                "idle_worker": (machine.fine_cpu(stage.workers) - worker) / seconds,
                "idle_database": (stage.server.fine_cpu() - server) / seconds,
                "statements": (stage.server.statements_logged() - statements) / seconds,
            }

    yield from repetitions(scale, measure)


def at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _wake_up(stage: Stage, calm: float) -> None:
    """Start a worker, let it run a job, and give it time to come to rest."""
    stage.start_worker()
    stage.child("fill", 1, 0, "noop")
    stage.wait_for_first_mark()
    time.sleep(calm)
