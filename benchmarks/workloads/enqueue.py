"""Enqueues by one client: one by one, each committed, and in bulk."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.stage import Stage
from benchmarks.usage import Usage
from benchmarks.workloads import Record, Scale, repetitions


def one_by_one(stage: Stage, scale: Scale) -> Iterator[Record]:
    yield from repetitions(scale, lambda _: _enqueue(stage, "one by one", scale.single_enqueues))


def bulk(stage: Stage, scale: Scale) -> Iterator[Record]:
    """By the queue's own bulk call, in batches of a thousand. Nothing is yielded for one that has none."""
    yield from (r for r in repetitions(scale, lambda _: _enqueue(stage, "bulk", scale.bulk_enqueues)) if "rate" in r)


def _enqueue(stage: Stage, how: str, jobs: int) -> Record:
    with stage.fresh():
        stage.tidy()
        before, begin = stage.server.counters(stage.database), Usage(stage)
        measured = stage.child("enqueue", how, jobs)
        if measured is None:
            return {}
        others = Usage(stage).others(begin)
        stage.server.wait_until_left(stage.database)
        after = stage.server.counters(stage.database)
    return {
        "jobs": jobs,
        "rate": jobs / measured["seconds"],
        "worker_cpu": measured["cpu"] / jobs * 1000,
        "wal": (after.wal - before.wal) / jobs,
        "other_cpus": others,
        "commits": (after.commits - before.commits) / jobs,
    }
