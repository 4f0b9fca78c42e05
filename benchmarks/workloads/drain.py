"""Jobs that wait are drained: by one worker, by two, beside a deep table, under a snapshot that is held open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import psycopg

from benchmarks import machine, marks
from benchmarks.stage import RunFailed, Stage
from benchmarks.usage import Usage
from benchmarks.workloads import Record, Scale, repetitions

PATIENCE = 120.0  # seconds
POLL = 0.004  # seconds between two looks whether all is recorded


def one(stage: Stage, scale: Scale) -> Iterator[Record]:
    """One worker."""
    yield from repetitions(scale, lambda _: _in_a_fresh_database(stage, scale.jobs, workers=1))


def two(stage: Stage, scale: Scale) -> Iterator[Record]:
    """Two workers, started together; twice the jobs, so that a late start of one matters less. In turns with one."""

    def measure(_: int) -> Record:
        return _beside(
            _in_a_fresh_database(stage, 2 * scale.jobs, workers=2), _in_a_fresh_database(stage, scale.jobs, workers=1)
        )

    yield from repetitions(scale, measure)


def _in_a_fresh_database(stage: Stage, jobs: int, workers: int) -> Record:
    with stage.fresh():
        return drain(stage, int(jobs * stage.variant.scale), workers=workers)


def deep(stage: Stage, scale: Scale) -> Iterator[Record]:
    """As many future rows and as many finished ones are there. Repetitions follow each other in one database, each in
    turns with a drain in an empty one."""
    priority = stage.variant.options.get("future_priority", 0)
    jobs = int(scale.jobs * stage.variant.scale)

    def measure(number: int) -> Record:
        return _beside(drain(stage, jobs, first=number * jobs), _in_a_fresh_database(stage, scale.jobs, workers=1))

    with stage.fresh():
        stage.child("prefill", scale.deep, scale.deep, priority)
        for record in repetitions(scale, measure):
            yield record
            if not record["complete"]:  # what is left would be drained by the next repetition
                return


def _beside(record: Record, other: Record) -> Record:
    """With the rate of what it is compared with, which was run just after it: the machine may be slower a minute later."""
    return record | {
        "beside": other["rate"],
        "complete": record["complete"] and other["complete"],
        "other_cpus": max(record["other_cpus"], other["other_cpus"]),
    }


def held(stage: Stage, scale: Scale) -> Iterator[Record]:
    """Another session holds a snapshot from before the first job: no row version can be cleaned up in all rounds."""

    def rounds(_: int) -> Record:
        jobs = int(scale.jobs * stage.variant.scale)
        with stage.fresh(), closing(stage.connect(autocommit=False)) as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM pg_class")
            # VACUUM could clean nothing up, which is the point; so only ANALYZE.
            done = [
                drain(stage, jobs, first=n * jobs, vacuum=False, holders=1) for n in range(scale.rounds)
            ]  # fmt: skip
        return done[-1] | {
            "rounds": [one["rate"] for one in done],
            "round_database_cpu": [one["database_cpu"] for one in done],
            "other_cpus": max(one["other_cpus"] for one in done),
            "complete": all(one["complete"] for one in done),
        }

    yield from repetitions(scale, rounds)


def drain(
    stage: Stage, jobs: int, *, first: int = 0, workers: int = 1, vacuum: bool = True, holders: int = 0
) -> Record:
    """Enqueue, tidy up, start the workers, and wait until the last job is recorded as finished.

    The rate counts from the first handler's start to the moment when the store shows no unfinished job; CPU counts in
    the same time. `holders`: sessions of the run itself that stay in the database.
    """
    server, database = stage.server, stage.database
    stage.forget_marks()
    before_fill = server.counters(database)
    stage.child("fill", jobs, first, "noop")
    if not holders:
        server.wait_until_left(database)
    filled = server.counters(database)
    stage.tidy(vacuum=vacuum)
    before = server.counters(database)
    with closing(stage.connect()) as connection:
        # A look must not keep more than one core busy.
        connection.execute("SET max_parallel_workers_per_gather = 0")
        record = _watch(stage, connection, jobs, workers)
    stage.stop_workers()
    if not holders:
        server.wait_until_left(database)
    after = server.counters(database)
    return record | {
        "wal_enqueue": (filled.wal - before_fill.wal) / jobs,
        "wal_run": (after.wal - before.wal) / jobs,
        "wal": (filled.wal - before_fill.wal + after.wal - before.wal) / jobs,
        "commits": (after.commits - before.commits - record["looks"]) / jobs,
    }


def _watch(stage: Stage, connection: psycopg.Connection, jobs: int, workers: int) -> Record:
    for _ in range(workers):
        stage.start_worker()
    started = time.time()
    stage.wait_for_first_mark()
    begin, marked, looks = Usage(stage), stage.marked(), 0
    complete = stage.wait_for_marks(jobs, PATIENCE)
    while complete:
        looks += 1
        if not stage.unfinished(connection):
            break
        if time.time() - started > 2 * PATIENCE:
            complete = False
        time.sleep(POLL)
    done, end = time.time(), Usage(stage)
    memory = machine.memory(stage.workers)
    found = marks.read(stage.marks)
    ran = len({mark.number for mark in found})
    if not found:
        raise RunFailed(f"{stage.variant.label}: nothing ran")
    counted = max(1, len(found) - marked)
    worker, server = end.worker - begin.worker, end.server - begin.server
    by_process = {mark.pid for mark in found}
    return {
        "jobs": jobs,
        "ran": ran,
        "complete": complete and ran >= jobs,
        "repeated": len(found) - ran,
        "rate": len(found) / (done - min(mark.at for mark in found)),
        "start": min(mark.at for mark in found) - started,
        "worker_cpu": worker / counted * 1000,
        "database_cpu": server / counted * 1000,
        "other_cpus": end.others(begin),
        "rss": memory.worker,
        "pss": memory.shared_out,
        "processes": memory.processes,
        "share": max(sum(mark.pid == pid for mark in found) for pid in by_process) / len(found),
        "looks": looks,
    }
