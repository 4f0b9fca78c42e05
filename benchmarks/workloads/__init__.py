"""What is run and measured. Each workload is a function of a stage and a scale that yields one record a repetition."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks import machine

Record = dict[str, Any]

#: CPUs that something else on this machine may keep busy during a run before it counts as disturbed.
DISTURBED = 0.25
#: The share of its pace to which a machine may slow down, or from which it may speed up, during a run that counts.
STEADY = 0.75


@dataclass(frozen=True)
class Scale:
    """How much of everything; `QUICK` only shows that it works. Times in seconds.

    `redo`: how many disturbed repetitions are made good for. `patience`: how long one waits for a calm machine.
    """

    repeat: int = 3
    redo: int = 3
    patience: float = 5.0
    jobs: int = 10_000
    single_enqueues: int = 1_000
    bulk_enqueues: int = 20_000
    trickled: int = 200
    calm: float = 1.5
    idle: float = 10.0
    deep: int = 500_000
    rounds: int = 4
    naps: int = 500
    crash_patience: float = 120.0
    peak: float = 60.0
    short_before: int = 3_000
    short_behind: int = 300
    short_waiting: int = 5_000
    standoff: float = 60.0


QUICK = Scale(
    repeat=1, redo=0, patience=0.0, jobs=300, single_enqueues=50, bulk_enqueues=1_000, trickled=20, calm=0.3, idle=2.0,
    deep=5_000, rounds=2, naps=60, crash_patience=30.0,
    peak=3.0, short_before=300, short_behind=30, short_waiting=200, standoff=3.0,
)  # fmt: skip


def repetitions(scale: Scale, measure: Callable[[int], Record]) -> Iterator[Record]:
    """Undisturbed records, as many as asked for. A disturbed one is yielded too, marked, and made good for by another,
    until `redo` of them were; then what there is has to do."""
    calm = redone = number = 0
    while calm < scale.repeat:
        wait_for_calm(scale.patience)
        before = machine.pace()
        record = measure(number)
        number += 1
        paces = (before, machine.pace())
        record["pace"] = min(paces)
        record["disturbed"] = record.get("other_cpus", 0.0) > DISTURBED or min(paces) < STEADY * max(paces)
        yield record
        if record["disturbed"] and redone < scale.redo:
            redone += 1
        else:
            calm += 1


def wait_for_calm(patience: float) -> None:
    """Until nothing else keeps the machine busy, or `patience` seconds are over."""
    give_up = time.monotonic() + patience
    while time.monotonic() < give_up and psutil.cpu_percent(0.25) / 100 * (os.cpu_count() or 1) > DISTURBED:
        pass
