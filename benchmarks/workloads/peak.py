"""The peak of a day with 300,000 jobs: 50 a second come one by one, and six workers with eight slots each run them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import machine, marks
from benchmarks.stage import Stage
from benchmarks.usage import Usage
from benchmarks.workloads import Record, Scale, repetitions
from benchmarks.workloads.latency import at

WORKERS = 6
RATE = 50  # jobs a second


def peak(stage: Stage, scale: Scale) -> Iterator[Record]:
    """CPUs in use by all workers and by the database for so many seconds, and how soon each 50 ms job began."""

    def measure(_: int) -> Record:
        jobs = int(RATE * scale.peak)
        with stage.fresh():
            for _ in range(WORKERS):
                stage.start_worker()
            stage.child("fill", WORKERS, 0, "nap")
            stage.wait_for_marks(2 * WORKERS, 60.0)
            begin = Usage(stage)
            enqueued = stage.child("steady", jobs, RATE, WORKERS, timeout=2 * scale.peak + 60)
            complete = stage.wait_for_marks(2 * (jobs + WORKERS), 60.0)
            end = Usage(stage)
            memory = machine.memory(stage.workers)
            found = marks.read(stage.marks)
        began: dict[int, float] = {}
        for mark in found:
            if mark.kind == marks.BEGIN:
                began.setdefault(mark.number, mark.at)
        late = sorted((began[n] - after) * 1000 for n, _, after in enqueued if n in began)
        seconds = end.at - begin.at
        return {
            "jobs": jobs, "seconds": seconds, "complete": complete and len(late) == jobs,
            "repeated": len(found) - 2 * (jobs + WORKERS), "p50": at(late, 0.5), "p99": at(late, 0.99), "worst": late[-1],
            "workers_share": (end.worker - begin.worker) / seconds,
            "database_share": (end.server - begin.server) / seconds,
            "rss": memory.worker, "other_cpus": end.others(begin),
        }  # fmt: skip

    yield from repetitions(scale, measure)
