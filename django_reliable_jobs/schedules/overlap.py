"""What a fire does while jobs of the same schedule's earlier fires are unfinished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from django_reliable_jobs.schedules.rules import Overlap


class Action(Enum):
    """What to do with one fire time."""

    ENQUEUE = "enqueue"
    ENQUEUE_BEHIND = "enqueue_behind"  # the job may only start when the running one has finished
    REPLACE = "replace"  # cancel what is unfinished, running or not, then enqueue
    SKIP = "skip"  # no job: the outcome `skipped_overlap`


@dataclass(frozen=True)
class Unfinished:
    """How many jobs of a schedule's earlier fires are RUNNING, and how many wait to run (QUEUED or FAILED)."""

    running: int = 0
    waiting: int = 0

    def __bool__(self) -> bool:
        return self.running > 0 or self.waiting > 0


def decide(overlap: Overlap, unfinished: Unfinished) -> Action:
    """Return what becomes of one fire time.

    `queue` lets at most one job wait, be it for the running one or for a free slot.
    """
    if not unfinished or overlap is Overlap.ALLOW:
        return Action.ENQUEUE
    if overlap is Overlap.CANCEL_RUNNING:
        return Action.REPLACE
    if overlap is Overlap.QUEUE and not unfinished.waiting:
        return Action.ENQUEUE_BEHIND
    return Action.SKIP


def decide_all(
    overlap: Overlap, unfinished: Unfinished, fire_times: Sequence[datetime]
) -> list[tuple[datetime, Action]]:
    """Return what becomes of several fire times (rising) that are fired at once, each with those before it waiting.

    Under `cancel_running` only the newest gets a job: the others would be cancelled by it before they could start.
    """
    if overlap is Overlap.CANCEL_RUNNING:
        superseded = [(each, Action.SKIP) for each in fire_times[:-1]]
        return superseded + [(each, decide(overlap, unfinished)) for each in fire_times[-1:]]
    decisions = []
    for each in fire_times:
        action = decide(overlap, unfinished)
        decisions.append((each, action))
        if action is not Action.SKIP:
            unfinished = Unfinished(unfinished.running, unfinished.waiting + 1)
    return decisions
