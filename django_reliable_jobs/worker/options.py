"""What a worker was started with."""

from __future__ import annotations

from dataclasses import dataclass, field

from django_reliable_jobs import conf
from django_reliable_jobs.definitions.validate import check_queue


@dataclass(frozen=True, slots=True)
class QueueSelection:
    """Which queues a worker serves; `caps` are slots of this process that a queue may use at most."""

    only: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()
    caps: dict[str, int] = field(default_factory=dict)

    def __contains__(self, queue: object) -> bool:
        return queue not in self.exclude and (self.only is None or queue in self.only)

    def __str__(self) -> str:
        served = (
            "all queues"
            if self.only is None
            else ", ".join(f"{q}:{self.caps[q]}" if q in self.caps else q for q in sorted(self.only))
        )
        return served + (f" but {', '.join(sorted(self.exclude))}" if self.exclude else "")


def parse_queues(queues: str | None, exclude: str | None = None) -> QueueSelection:
    """`"mail:4,default"`: the queues to serve, with the most slots of this process that a queue may use.

    Raises `ValueError` that says what is wrong.
    """
    only: set[str] = set()
    caps: dict[str, int] = {}
    for part in (queues or "").split(","):
        name, colon, cap = part.strip().partition(":")
        if not name and not colon:
            continue
        only.add(check_queue(name))
        if colon:
            if not cap.isdecimal() or int(cap) < 1:
                raise ValueError(f"--queues {part.strip()!r}: after the colon stands a number of slots of at least 1.")
            caps[name] = int(cap)
    excluded = frozenset(check_queue(name.strip()) for name in (exclude or "").split(",") if name.strip())
    if both := only & excluded:
        raise ValueError(f"queue {sorted(both)[0]!r} is in --queues and in --exclude-queues.")
    return QueueSelection(frozenset(only) if only else None, excluded, caps)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Command-line options after parsing. `grace` is in seconds; `max_jobs` None is no limit."""

    queues: QueueSelection = field(default_factory=QueueSelection)
    slots: int = 8
    processes: int = 1
    burst: bool = False
    max_jobs: int | None = None
    grace: float = 20.0
    max_jobs_per_process: int | None = None
    max_rss: int | None = None
    alias: str = field(default_factory=lambda: conf.current().database)
