"""The evidence, ordered by job, token and tag, for the invariants and the report."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.chaos.evidence import AttemptRow, EffectRow, Evidence, JobRow, Refusal
from tests.chaos.history import Event, Expectation


class Key(NamedTuple):
    """One claim of one job."""

    job: int
    token: int


@dataclass
class Enqueued:
    """What the producers know of a tag."""

    kind: str
    expect: Expectation
    states: set[str] = field(default_factory=set)

    @property
    def state(self) -> str:
        """A commit that is known outweighs everything; a rollback is known only if nothing else ever happened."""
        if "committed" in self.states:
            return "committed"
        return "rolled back" if self.states == {"rolled back"} else "unknown"


class Story:
    """Everything by its keys. Lists keep the order of time."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.enqueued: dict[str, Enqueued] = {}
        self.starts: dict[Key, list[Event]] = defaultdict(list)
        self.ends: dict[Key, list[Event]] = defaultdict(list)
        self.tokens: dict[int, list[int]] = defaultdict(list)  # of a job's handlers, in the order of their starts
        self.jobs: dict[int, JobRow] = {row.id: row for row in evidence.jobs}
        self.by_tag: dict[str, list[JobRow]] = defaultdict(list)
        self.attempts: dict[Key, list[AttemptRow]] = defaultdict(list)
        self.effects: dict[str, list[EffectRow]] = defaultdict(list)
        self.refusals: dict[Key, list[Refusal]] = defaultdict(list)
        for event in sorted(evidence.history, key=lambda e: e["mono"]):
            self._take(event)
        for row in evidence.jobs:
            if row.tag is not None:
                self.by_tag[row.tag].append(row)
        for attempt in evidence.attempts:
            self.attempts[Key(attempt.job, attempt.token)].append(attempt)
        for effect in evidence.effects:
            self.effects[effect.tag].append(effect)
        for refusal in evidence.refusals:
            self.refusals[Key(refusal.job, refusal.token)].append(refusal)
        #: Wall time minus monotonic time; the wall clock is also the database's, which runs on the same machine.
        self.offset = max((e["wall"] - e["mono"] for e in evidence.history), default=0.0)

    def _take(self, event: Event) -> None:
        what = event["event"]
        if what == "enqueue":
            expect = Expectation(**{**event["expect"], "final": tuple(event["expect"]["final"])})
            for tag in event["tags"]:
                self.enqueued.setdefault(tag, Enqueued(event["kind"], expect))
        elif what == "enqueued":
            for tag in event["tags"]:
                self.enqueued[tag].states.add(event["state"])
        elif what == "start":
            key = Key(event["job"], event["token"])
            self.starts[key].append(event)
            self.tokens[key.job].append(key.token)
        elif what == "end":
            self.ends[Key(event["job"], event["token"])].append(event)

    def over_at(self, key: Key) -> float:
        """When this run was certainly over: its end, or the death of its process; infinity if nobody knows."""
        if ends := self.ends.get(key):
            return float(max(event["mono"] for event in ends))
        return max((self.evidence.timeline.deaths.get(e["pid"], math.inf) for e in self.starts[key]), default=math.inf)

    def was_cut(self, key: Key) -> bool:
        """Whether it was settled at its deadline, without its handler, which may go on for a while."""
        return any(attempt.reason == "deadline exceeded" for attempt in self.attempts[key])

    def is_lost(self, key: Key) -> bool:
        """The tables say that the lease of this claim was lost."""
        return any(attempt.reason == "lost" for attempt in self.attempts[key])

    def rows_of(self, tag: str) -> list[JobRow]:
        return self.by_tag.get(tag, [])

    def jobs_of(self, tags: Iterable[str]) -> list[int]:
        return [row.id for tag in tags for row in self.rows_of(tag)]
