"""A producer: an application process that enqueues jobs in transactions, and suffers the same faults as the workers.

    python -m tests.chaos.producer NAME --mix storm --jobs 2500 --seconds 40 --seed 7

It commits, rolls back whole transactions and savepoints, uses the bulk verb, and tells the history what it knows of
each. A commit whose answer was lost is unknown; a batch with idempotency keys is then simply enqueued again, as an
application would do it.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import django

MOST = 20
TROUBLE_PAUSE = 0.2


class RolledBack(Exception):
    """The application changed its mind."""


@dataclass
class Batch:
    """Jobs of one transaction: their kinds, tags and arguments."""

    kinds: list[str]
    tags: list[str]
    arguments: list[tuple[Any, ...]]
    keyed: bool

    def announce(self) -> None:
        from tests.chaos.history import record_enqueue
        from tests.chaos.workload.mix import KINDS

        for kind in sorted(set(self.kinds)):
            tags = [tag for tag, of in zip(self.tags, self.kinds, strict=True) if of == kind]
            record_enqueue(tags, KINDS[kind].definition.name, KINDS[kind].expect)

    def enqueue(self) -> None:
        from tests.chaos.workload.mix import KINDS

        for kind, tag, arguments in zip(self.kinds, self.tags, self.arguments, strict=True):
            bound = KINDS[kind].definition.using(idempotency_key=tag if self.keyed else None)
            bound.enqueue(tag, *arguments)

    def enqueue_many(self) -> None:
        """The bulk verb takes calls of one job: the batch's are sorted by kind."""
        from tests.chaos.workload.mix import KINDS

        for kind in sorted(set(self.kinds)):
            calls = [
                (tag, *arguments)
                for of, tag, arguments in zip(self.kinds, self.tags, self.arguments, strict=True)
                if of == kind
            ]
            key: Callable[..., str] | None = (lambda tag, *rest: tag) if self.keyed else None
            KINDS[kind].definition.using(idempotency_key=key).enqueue_many(calls)


def attempt(batch: Batch, way: str) -> str:
    """Enqueue the batch; what became of it."""
    from django.db import Error, connection, transaction

    reached_commit = False
    try:
        with transaction.atomic():
            with suppress(RolledBack) if way == "savepoint" else nullcontext(), transaction.atomic():
                batch.enqueue_many() if way == "bulk" else batch.enqueue()
                if way in ("rollback", "savepoint"):
                    raise RolledBack
            reached_commit = True
    except RolledBack:
        return "rolled back"
    except Error:
        connection.close()
        time.sleep(TROUBLE_PAUSE)
        return "unknown" if reached_commit and way != "savepoint" else "rolled back"
    return "rolled back" if way == "savepoint" else "committed"


def produce(name: str, mix: str, jobs: int, seconds: float, seed: int) -> None:
    from tests.chaos.history import record
    from tests.chaos.workload.mix import KINDS, draw, tags

    dice = random.Random(f"{seed} {name}")
    began = time.monotonic()
    committed = number = 0
    while committed < jobs:
        kinds = draw(mix, dice, min(dice.randint(1, MOST), jobs - committed))
        arguments = [KINDS[kind].arguments(dice) for kind in kinds]
        batch = Batch(kinds, tags(name, number, kinds), arguments, keyed=dice.random() < 0.5)
        number += len(kinds)
        way = dice.choices(["commit", "bulk", "rollback", "savepoint"], [70, 15, 10, 5])[0]
        while True:
            batch.announce()
            state = attempt(batch, way)
            record("enqueued", tags=batch.tags, state=state)
            if state == "committed":
                committed += len(kinds)
            if not (batch.keyed and state == "unknown"):
                break
        pause = began + seconds * committed / jobs - time.monotonic()
        if pause > 0:
            time.sleep(pause)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--mix", required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.chaos.settings"
    django.setup()
    produce(options.name, options.mix, options.jobs, options.seconds, options.seed)


if __name__ == "__main__":
    main()
