"""What a worker holds and no slot has begun: RUNNING in the table, waiting in truth (protocol 8).

A job that is held for an instant begins as the claim found it. From `FRESH` seconds on a slot does not begin it before
the database was asked again, for all of them in one statement: is it still ours, not cancelled, not expired, and its
queue not paused? While slots keep beginning jobs, the engine asks a little before that, so that none of them waits
for the answer; when they do not, nothing is asked until a slot is free.

What can interleave: a slot begins an attempt while the engine withdraws it. `Attempt.begin` and `Attempt.withdraw` know
which of the two was first; a slot that comes second drops it, an engine that comes second lets it run, as if the pause or
the cancel request had come a moment later. Only the engine's thread uses this.
"""

from __future__ import annotations

import time
from collections import deque

from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.values.lease import LeaseKey
from django_reliable_jobs.values.outcome import UNBEGUN
from django_reliable_jobs.worker.handlers.slots import SlotPool
from django_reliable_jobs.worker.leases.prefetch import HOLD, STALLED

#: Seconds for which the answer of the database is good.
FRESH = 0.1
#: The engine asks so many seconds before a slot would have to.
EARLY = 0.03


class Waiting:
    """The attempts in the order of their claims. Those that were begun or decided go when they come to the front."""

    def __init__(self, pool: SlotPool) -> None:
        self.pool = pool
        self._held: deque[Attempt] = deque()
        self.payload_bytes = 0

    def add(self, attempt: Attempt, asked_at: float) -> None:
        expires_in = attempt.lease.expires_in
        attempt.ask_at = asked_at + (FRESH if expires_in is None else min(FRESH, expires_in))
        self._held.append(attempt)
        self.payload_bytes += _size(attempt)

    def first(self) -> Attempt | None:
        """The one that waits longest."""
        held = self._held
        while held and (held[0].begun or held[0].outcome is not None):
            self.payload_bytes -= _size(held.popleft())
        return held[0] if held else None

    def look_in(self) -> float | None:
        """Seconds until `overdue` or `to_ask` may have an answer; None while nothing waits."""
        first = self.first()
        if first is None:
            return None
        if not self.pool.doubtful.empty():
            return 0.0
        now = time.monotonic()
        until_overdue = first.claimed_at + HOLD - now
        return min(until_overdue, first.ask_at - EARLY - now) if self._flows(now) else until_overdue

    def overdue(self) -> bool:
        first = self.first()
        return first is not None and time.monotonic() - first.claimed_at >= HOLD

    def to_ask(self) -> list[Attempt]:
        """Those that the database has to be asked for; none as long as no slot needs to know."""
        first, now = self.first(), time.monotonic()
        if first is None or (self.pool.doubtful.empty() and (now < first.ask_at - EARLY or not self._flows(now))):
            return []
        self._held = deque(one for one in self._held if not one.begun and one.outcome is None)
        self.payload_bytes = sum(map(_size, self._held))
        return [one for one in self._held if one.ask_at - 2 * EARLY <= now]

    def answered(self, asked: list[Attempt], good: set[LeaseKey], asked_at: float) -> list[Attempt]:
        """Takes over what the database said; the attempts that are withdrawn."""
        withdrawn = []
        for attempt in asked:
            if attempt.key in good:
                attempt.ask_at = asked_at + FRESH
            elif attempt.withdraw(UNBEGUN):
                self.pool.occupied.discard(attempt)
                withdrawn.append(attempt)
        return withdrawn

    def _flows(self, now: float) -> bool:
        return now - self.pool.begun_at < STALLED


def _size(attempt: Attempt) -> int:
    return len(attempt.lease.args) + len(attempt.lease.kwargs)
