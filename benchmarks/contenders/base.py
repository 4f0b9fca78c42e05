"""What a benchmark asks of a queue. Standard library only: this runs inside the environment of every contender."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, ClassVar

DATABASE = "BENCH_DATABASE"
OPTIONS = "BENCH_OPTIONS"


def database() -> dict[str, Any]:
    """host, port, user and dbname, as libpq calls them."""
    return dict(json.loads(os.environ[DATABASE]))


def dsn() -> str:
    """The same as a URL."""
    d = database()
    return f"postgresql://{d['user']}@/{d['dbname']}?host={d['host']}&port={d['port']}"


def options() -> dict[str, Any]:
    """The settings of the variant that is measured."""
    return dict(json.loads(os.environ.get(OPTIONS, "{}")))


class BaseContender:
    """All methods run in child processes. `kind` is "noop" (one mark) or "nap" (two marks, 50 ms apart)."""

    #: Distributions whose versions are printed.
    packages: ClassVar[Sequence[str]] = ()
    #: What pip installs into the peer's own environment; nothing for those that run in ours.
    requirements: ClassVar[Sequence[str]] = ()
    #: One row with one number: jobs that are due and not recorded as finished.
    unfinished: ClassVar[str] = ""
    #: The same of the "noop" jobs, and how many times jobs were claimed up to now, each one counted: for w10.
    short_left: ClassVar[str] = ""
    claims: ClassVar[str] = ""

    def setup(self) -> None:
        """Make the tables in an empty database."""
        raise NotImplementedError

    def connect(self) -> None:
        """Before the first enqueue of a process."""

    def close(self) -> None:
        """After its last one."""

    def enqueue(self, number: int, kind: str = "noop") -> None:
        """One job, committed when this returns."""
        raise NotImplementedError

    def enqueue_many(self, numbers: Sequence[int], kind: str = "noop") -> None:
        """The queue's own bulk call, a thousand at a time; `NotImplementedError` where it has none."""
        raise NotImplementedError

    def fill(self, numbers: Sequence[int], kind: str = "noop") -> None:
        """Make jobs to drain, however; not measured."""
        self.enqueue_many(numbers, kind)

    def hold(self, jobs: int, seconds: float) -> None:
        """Make jobs that keep a slot for so long."""
        raise NotImplementedError

    def prefill(self, future: int, finished: int, priority: int) -> None:
        """Rows as the queue stores them: due tomorrow and later (at `priority`), and finished ones."""
        raise NotImplementedError

    def work(self) -> None:
        """Run jobs until killed."""
        raise NotImplementedError


def batches(numbers: Sequence[int], size: int = 1000) -> list[Sequence[int]]:
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]
