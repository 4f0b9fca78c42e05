"""Which jobs a producer enqueues, and what is to become of each kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django_reliable_jobs.definitions.job import JobDefinition
from tests.chaos.history import Expectation
from tests.chaos.workload import jobs

Dice = random.Random
STEPS = 5


@dataclass(frozen=True)
class Kind:
    """`arguments` makes those that follow the tag."""

    definition: JobDefinition
    expect: Expectation
    arguments: Callable[[Dice], tuple[Any, ...]] = lambda dice: ()


DONE = Expectation()
DEAD = Expectation(final=("DEAD",))
ONE_EFFECT = Expectation(effects=1)

KINDS = {
    "quick": Kind(jobs.quick, DONE),
    "coroutine": Kind(jobs.coroutine, DONE, lambda dice: (dice.uniform(0, 0.3),)),
    "flaky": Kind(jobs.flaky, DONE, lambda dice: (dice.randint(1, 2),)),
    "snoozing": Kind(jobs.snoozing, DONE),
    "slow": Kind(jobs.slow, DONE, lambda dice: (dice.uniform(1, 3),)),
    "atomic": Kind(jobs.atomic, ONE_EFFECT, lambda dice: (0.0,)),
    "slow atomic": Kind(jobs.atomic, ONE_EFFECT, lambda dice: (dice.uniform(0.5, 2),)),
    "lingering": Kind(jobs.lingering, ONE_EFFECT, lambda dice: (8.0,)),
    "parent": Kind(jobs.parent, ONE_EFFECT),
    "steps": Kind(jobs.steps, Expectation(effects=STEPS, partial=True), lambda dice: (STEPS, dice.uniform(0, 0.3))),
    "failing": Kind(jobs.failing, DEAD),
    "hopeless": Kind(jobs.hopeless, DEAD),
    "deadly": Kind(jobs.deadly, DEAD),
    "brittle": Kind(jobs.brittle, Expectation(final=("DONE", "DEAD")), lambda dice: (dice.uniform(0.2, 2),)),
    "chatty": Kind(jobs.chatty, DONE),
    "freezing": Kind(jobs.freezing, DONE),
    "endless": Kind(jobs.slow, DONE, lambda dice: (60.0,)),
    "endless asking": Kind(jobs.asking, DONE, lambda dice: (60.0,)),
}

#: Name of a mix -> weights of its kinds.
MIXES: dict[str, dict[str, int]] = {
    "storm": {
        "quick": 35, "coroutine": 15, "atomic": 13, "flaky": 8, "slow": 8, "snoozing": 5, "slow atomic": 5, "parent": 4,
        "steps": 4, "failing": 2, "hopeless": 1,
    },
    "long": {"slow": 6, "slow atomic": 2, "steps": 2},
}  # fmt: skip


def draw(mix: str, dice: Dice, count: int) -> list[str]:
    """Kinds of a mix; the name of a kind stands for that kind alone."""
    weights = MIXES.get(mix) or {mix: 1}
    return dice.choices(list(weights), weights=list(weights.values()), k=count)


def tags(prefix: str, first: int, kinds: Sequence[str]) -> list[str]:
    return [f"{prefix}-{first + i}" for i in range(len(kinds))]
