"""Short jobs behind long ones: does what a worker holds ahead of its slots keep an idle one waiting, and is it claimed
again and again while nobody can run it?"""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg

from benchmarks import marks
from benchmarks.stage import RunFailed, Stage
from benchmarks.usage import Usage
from benchmarks.workloads import Record, Scale, repetitions

SLOTS = 8  # by default
LONG = 25.0  # seconds
PATIENCE = 120.0  # seconds
LOOK = 0.02  # seconds
#: How much longer than the look at the claims the long jobs are: the second worker's begin later than the first one's.
OUTLAST = 60.0
NEWS = 20


def behind_long(stage: Stage, scale: Scale) -> Iterator[Record]:
    """One worker, long jobs in all of its slots and short ones behind them; then a second one comes."""
    yield from repetitions(scale, lambda _: _second_worker(stage, scale, before=0))


def behind_long_claiming_ahead(stage: Stage, scale: Scale) -> Iterator[Record]:
    """The same after many short jobs, from which the first worker has learned to claim ahead."""
    yield from repetitions(scale, lambda _: _second_worker(stage, scale, before=scale.short_before))


def _second_worker(stage: Stage, scale: Scale, *, before: int) -> Record:
    with stage.fresh(), stage.connect() as connection:
        if before:
            stage.child("fill", before, 0, "noop")
        stage.child("hold", SLOTS, LONG)
        stage.child("fill", scale.short_behind, before, "noop")
        stage.start_worker()
        _all_hold(stage, SLOTS)
        left = _number(connection, stage.contender.short_left)
        first = {mark.pid for mark in marks.read(stage.marks)}
        begin, started = Usage(stage), time.time()
        stage.start_worker()
        complete = stage.wait(lambda: not _number(connection, stage.contender.short_left), PATIENCE, LOOK)
        after = time.time() - started
        other_cpus = Usage(stage).others(begin)
        second = [mark.at - started for mark in marks.read(stage.marks) if mark.pid not in first]
    return {
        "jobs": before + scale.short_behind, "left": left, "complete": complete, "after": after,
        "first_job": min(second, default=None), "other_cpus": other_cpus,
    }  # fmt: skip


def claims(stage: Stage, scale: Scale) -> Iterator[Record]:
    """Long jobs in all slots of two workers, and short ones that nobody can run: how many are claimed all the same?"""

    def measure(number: int) -> Record:
        with stage.fresh(), stage.connect() as connection:
            stage.child("fill", scale.short_before, 0, "noop")
            stage.child("hold", 2 * SLOTS, scale.standoff + OUTLAST)
            stage.child("fill", scale.short_before, scale.short_before, "noop")
            for _ in range(2):
                stage.start_worker()
            _all_hold(stage, 2 * SLOTS)
            stage.child("fill", scale.short_waiting, 2 * scale.short_before, "noop")
            until = time.monotonic() + scale.standoff
            first = _number(connection, stage.contender.claims)
            stage.child("trickle", NEWS, number)
            stage.wait(lambda: time.monotonic() >= until, scale.standoff + PATIENCE, LOOK)
            drawn = _number(connection, stage.contender.claims) - first
            left = _number(connection, stage.contender.short_left)
            held = all(mark.kind == marks.BEGIN for mark in marks.read(stage.marks) if mark.number == marks.HOLDS)
        # Nothing has come free, so nothing was to be claimed.
        return {"jobs": left, "seconds": scale.standoff, "complete": held and left > 0, "claims": drawn}

    yield from repetitions(scale, measure)


def _all_hold(stage: Stage, wanted: int) -> None:
    def holding() -> bool:
        return sum(mark.number == marks.HOLDS for mark in marks.read(stage.marks)) >= wanted

    if not stage.wait(holding, PATIENCE, LOOK):
        raise RunFailed(f"{stage.variant.label}: no {wanted} long jobs ran at once")


def _number(connection: psycopg.Connection, statement: str) -> int:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return int(row[0])
