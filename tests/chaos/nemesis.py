"""The nemesis: injects faults by a plan that a seed makes. CHAOS_SEED in the environment makes the same plan again.

A new fault is a function in `faults.py`. It gets the arena and dice of its own, blocks for as long as the fault lasts,
and undoes it before it returns; several may be under way at once.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.chaos.arena import Arena

Fault = Callable[["Arena", random.Random], None]

FAULTS: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    """Register a fault under its function's name."""
    FAULTS[function.__name__.replace("_", " ")] = function
    return function


def choose_seed() -> int:
    asked = os.environ.get("CHAOS_SEED")
    return int(asked) if asked else random.SystemRandom().randrange(10**9)


@dataclass(frozen=True)
class Planned:
    """A fault, its moment in seconds from the start of the plan, and the seed of its dice."""

    at: float
    name: str
    seed: int


def make_plan(seed: int, seconds: float, weights: Mapping[str, int], pauses: tuple[float, float]) -> list[Planned]:
    """Each fault at least once, in any order, then by weight; with pauses between them drawn from `pauses`."""
    dice = random.Random(f"plan {seed}")
    names = list(weights)
    dice.shuffle(names)
    plan, at = [], 0.0
    while (at := at + dice.uniform(*pauses)) < seconds or names:
        name = names.pop() if names else dice.choices(list(weights), weights=list(weights.values()))[0]
        plan.append(Planned(round(at, 3), name, dice.randrange(10**9)))
    return plan


class Nemesis:
    """Carries a plan out in threads of its own. `join` waits for the end of the last fault and raises their errors."""

    def __init__(self, arena: Arena, plan: Sequence[Planned]) -> None:
        self.arena = arena
        self.plan = plan
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._main = threading.Thread(target=self._run, name="nemesis", daemon=True)

    def start(self) -> None:
        self._main.start()

    def join(self) -> None:
        self._main.join()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _run(self) -> None:
        began = time.monotonic()
        for planned in self.plan:
            time.sleep(max(0.0, began + planned.at - time.monotonic()))
            thread = threading.Thread(target=self._inject, args=(planned,), name=planned.name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _inject(self, planned: Planned) -> None:
        try:
            FAULTS[planned.name](self.arena, random.Random(planned.seed))
        except BaseException as error:  # raised by `join`
            self.errors.append(error)
