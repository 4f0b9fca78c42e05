"""When what was done to whom: the faults of a run, and the deaths that followed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

EVERYBODY = "everybody"
#: What a fault is called that kills a supervisor and leaves its workers.
ORPHANS = "SIGKILL to a supervisor"


@dataclass
class Incident:
    """A fault. `hit` are the pids it disturbed (None: whoever used the database); times are monotonic seconds."""

    what: str
    target: str
    begin: float
    end: float | None = None
    hit: frozenset[int] | None = None

    def touches(self, pid: int | None, begin: float, end: float) -> bool:
        """Whether it disturbed this process (None: any) at some moment of the interval."""
        overlaps = self.begin <= end and (self.end is None or self.end >= begin)
        return overlaps and (self.hit is None or pid is None or pid in self.hit)


@dataclass
class Timeline:
    """Written by the nemesis and the fleet, from their threads."""

    began: float = field(default_factory=time.monotonic)
    incidents: list[Incident] = field(default_factory=list)
    #: pid -> the last moment at which it can have done anything.
    deaths: dict[int, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def incident(self, what: str, target: str, hit: set[int] | None = None) -> Iterator[Incident]:
        """For the duration of the block."""
        one = Incident(what, target, time.monotonic(), hit=None if hit is None else frozenset(hit))
        with self._lock:
            self.incidents.append(one)
        try:
            yield one
        finally:
            one.end = time.monotonic()

    def died(self, pid: int, when: float) -> None:
        with self._lock:
            self.deaths.setdefault(pid, when)

    @property
    def orphaned(self) -> dict[int, float]:
        """pid -> when its supervisor was killed."""
        killed = [one for one in self.incidents if one.what == ORPHANS and one.hit is not None]
        return {pid: one.begin for one in killed for pid in one.hit or ()}

    def describe(self) -> str:
        """One line an incident, in seconds since the run began."""
        lines = []
        for one in sorted(self.incidents, key=lambda i: i.begin):
            lasted = "goes on" if one.end is None else f"{one.end - one.begin:.2f} s"
            hit = "" if one.hit is None else f" (pids {', '.join(map(str, sorted(one.hit)))})"
            lines.append(f"{one.begin - self.began:8.2f} s  {one.what}: {one.target}{hit}, {lasted}")
        return "\n".join(lines) or "no faults"
