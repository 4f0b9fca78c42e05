"""Which contenders run which workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.stage import Stage, Variant
from benchmarks.workloads import Record, Scale, ahead, crash, drain, enqueue, latency, peak, schedules

Workload = Callable[[Stage, Scale], Iterator[Record]]

#: Name on the command line, what it is called in the table, and its parts.
WORKLOADS: dict[str, tuple[str, Sequence[Workload]]] = {
    "w1": ("drain, one worker", [drain.one]),
    "w2": ("drain, two workers", [drain.two]),
    "w3": ("enqueue", [enqueue.one_by_one, enqueue.bulk]),
    "w4": ("idle worker", [latency.pickup, latency.idle]),
    "w5": ("drain beside a deep table", [drain.deep]),
    "w6": ("drain under a held snapshot", [drain.held]),
    "w7": ("crash", [crash.worker_killed, crash.tree_killed]),
    "w8": ("schedules", [schedules.lateness]),
    "w9": ("a busy day's peak", [peak.peak]),
    "w10": ("held ahead", [ahead.behind_long, ahead.behind_long_claiming_ahead, ahead.claims]),
}


@dataclass(frozen=True)
class Entry:
    """A variant and the workloads that it takes part in."""

    variant: Variant
    workloads: Sequence[str]

    def parts(self, name: str) -> Sequence[Workload]:
        """Who has no supervisor has no process that could be killed alone."""
        parts = WORKLOADS[name][1]
        return parts if name != "w7" or self.variant.supervised else [crash.tree_killed]


DEFAULT = Variant("ours", "default settings", supervised=True)
#: What `docs/benchmarks.md` recommends where throughput is all.
HIGH_THROUGHPUT = {"RELIABLE_JOBS": {"PREFETCH": 1000}}

OURS: Sequence[Entry] = (
    Entry(DEFAULT, ("w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10")),
    Entry(replace(DEFAULT, label="coroutine handlers", options={"handler": "coroutine"}), ("w1",)),
    Entry(replace(DEFAULT, label="high throughput", options=HIGH_THROUGHPUT), ("w1", "w2")),
    Entry(
        replace(DEFAULT, label="high throughput, coroutines", options=HIGH_THROUGHPUT | {"handler": "coroutine"}),
        ("w1",),
    ),
    Entry(replace(DEFAULT, label="future rows at priority 50", options={"future_priority": 50}), ("w5",)),
)
RAW: Sequence[Entry] = (
    Entry(Variant("raw", "8 threads, one by one", {"threads": 8, "batch": 1}), ("w1", "w2", "w3", "w4", "w5")),
    Entry(Variant("raw", "1 connection, batches of 100", {"threads": 1, "batch": 100}, scale=2.0), ("w1", "w6")),
)
