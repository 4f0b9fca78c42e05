"""The history: what producers and handlers did, written by themselves as they did it.

One JSON object a line, one `write` to a file opened with O_APPEND: lines of many processes do not mix, and a process
that is killed leaves a whole line or none. CLOCK_MONOTONIC is one clock for all processes of a machine, so `mono`
orders what they did; `wall` compares with the database's times.

events
    enqueue     about to enqueue `tags`; `expect` says what is to become of them (see `Expectation`)
    enqueued    how that went: `state` is `committed`, `rolled back` or `unknown` (the answer to the commit was lost)
    start, end  of a handler, with `job`, `token`, `attempt`, `tag`, `kind`; `end` with the `outcome`: `returned`,
                `raised`, `snoozed` or `stopped`
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]

ENVIRONMENT = "CHAOS_HISTORY"

_file: int | None = None


@dataclass(frozen=True)
class Expectation:
    """What a producer expects of a job, in the words of the contract.

    `final`: the statuses it may end in. `effects`: rows in the effects table, one a step, if it ends DONE.
    `partial`: whether a job that did not end DONE may have left some of them (it commits step by step).
    `bound_to`: it was enqueued in the transaction of the atomic job with this tag, so it is there exactly when that
    one is DONE.
    """

    final: tuple[str, ...] = ("DONE",)
    effects: int = 0
    partial: bool = False
    bound_to: str | None = None


def record(event: str, **details: Any) -> None:
    """Append an event to the file that the environment names."""
    global _file
    if _file is None:
        _file = os.open(os.environ[ENVIRONMENT], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    line = {"event": event, "pid": os.getpid(), "mono": time.monotonic(), "wall": time.time(), **details}
    os.write(_file, json.dumps(line).encode() + b"\n")


def record_enqueue(tags: list[str], kind: str, expect: Expectation, **details: Any) -> None:
    record("enqueue", tags=tags, kind=kind, expect=asdict(expect), **details)


def read(path: Path) -> Iterator[Event]:
    """All events in the order in which they were written."""
    if not path.exists():
        return
    with path.open() as lines:
        for line in lines:
            if line.endswith("\n"):  # or it is being written just now
                yield json.loads(line)
