"""One step of a contender, in a process of its own and in the contender's environment:

    python -m benchmarks.child CONTENDER setup | versions | fill | hold | enqueue | trickle | steady | prefill | work [ARGUMENTS]

What is measured here goes to standard output as one line of JSON.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.contenders.base import BaseContender

WARM_UP = 20


def load(name: str) -> BaseContender:
    contender: BaseContender = importlib.import_module(f"benchmarks.contenders.{name}").Contender()
    return contender


def versions(contender: BaseContender) -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in contender.packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def fill(contender: BaseContender, jobs: str, first: str, kind: str) -> None:
    contender.connect()
    contender.fill(range(int(first), int(first) + int(jobs)), kind)
    contender.close()


def hold(contender: BaseContender, jobs: str, seconds: str) -> None:
    contender.connect()
    contender.hold(int(jobs), float(seconds))
    contender.close()


def enqueue(contender: BaseContender, how: str, jobs: str) -> dict[str, float] | None:
    """Enqueue one by one or in bulk: seconds of wall time and of this process' CPU."""

    def one_by_one(numbers: Sequence[int]) -> None:
        for number in numbers:
            contender.enqueue(number)

    call = one_by_one if how == "one by one" else contender.enqueue_many
    contender.connect()
    try:
        call(range(WARM_UP))
    except NotImplementedError:
        return None
    began, cpu = time.perf_counter(), time.process_time()
    call(range(int(jobs)))
    measured = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    contender.close()
    return measured


def trickle(contender: BaseContender, jobs: str, seed: str) -> list[tuple[int, float, float]]:
    """Single enqueues with pauses: (number, before, after) of each, as `time.time()`."""
    chance = random.Random(int(seed))
    times = []
    contender.connect()
    for number in range(1, int(jobs) + 1):
        time.sleep(chance.uniform(0.005, 0.050))
        before = time.time()
        contender.enqueue(number)
        times.append((number, before, time.time()))
    contender.close()
    return times


def steady(contender: BaseContender, jobs: str, rate: str, first: str) -> list[tuple[int, float, float]]:
    """Single enqueues of jobs that nap, `rate` a second, whatever each takes; the times of each as in `trickle`."""
    contender.connect()
    times, began = [], time.time()
    for turn in range(int(jobs)):
        time.sleep(max(0.0, began + turn / float(rate) - time.time()))
        before = time.time()
        contender.enqueue(int(first) + turn, "nap")
        times.append((int(first) + turn, before, time.time()))
    contender.close()
    return times


def prefill(contender: BaseContender, future: str, finished: str, priority: str) -> None:
    contender.prefill(int(future), int(finished), int(priority))


def main(name: str, step: str, *arguments: str) -> None:
    contender = load(name)
    steps: dict[str, Callable[..., Any]] = {
        "setup": type(contender).setup,
        "work": type(contender).work,
        "versions": versions,
        "fill": fill,
        "hold": hold,
        "enqueue": enqueue,
        "trickle": trickle,
        "steady": steady,
        "prefill": prefill,
    }
    print(json.dumps(steps[step](contender, *arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
