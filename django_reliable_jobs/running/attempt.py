"""One running attempt: what the slot, the watchdog, the heartbeat and the handler's context share.

Who decides. Several threads may want to say what an attempt came to: the slot when the handler returns, the watchdog at
the deadline, the heartbeat when the lease is lost. `decide` takes the first one and refuses the others, so exactly one
outcome is offered to the database; whether that one is written is then decided by the row's token.

Who begins. Between the claim and a slot an attempt waits in memory; `begin` and `withdraw` exclude each other.

Who stops. `stop` is told once why (the first reason stays) and calls what the slot put into `on_stop`: cancel the
asyncio task, cancel the running query, raise the exception in the thread.

Without locks: a stop exception can land in the handler's thread between the acquire of a lock and its `try`, and the
heartbeat, which may stop any attempt, would wait for that lock for ever. The first one is who `dict.setdefault` lets in,
which is one step of the interpreter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django_reliable_jobs.errors import LeaseLost, StopHandler
from django_reliable_jobs.values.elapsed import elapsed
from django_reliable_jobs.values.lease import Lease
from django_reliable_jobs.values.outcome import Outcome

Clock = Callable[[], float]


class Attempt:
    """Times are `time.monotonic()` seconds of this process, and `elapsed()` for the lease; a host's wall clock has no say."""

    __slots__ = ("_first", "ask_at", "begun_word", "came_back", "claimed_at", "deadline", "key", "lease", "on_stop", "progress",
                 "safe_until", "started", "told", "took")  # fmt: skip

    def __init__(self, lease: Lease, safe_until: float = float("inf")) -> None:
        self.lease = lease
        self.key = lease.key
        #: Until when (`elapsed()`) the lease is certainly ours: the last extension was asked for one LEASE before this.
        self.safe_until = safe_until
        #: When the claim's answer was here, and from when on what the claim found may be out of date (protocol 8).
        self.claimed_at = time.monotonic()
        self.ask_at = float("inf")
        #: Where the supervisor reads that it has begun (`worker.shared_state`).
        self.begun_word: int | None = None
        self.started: float | None = None
        #: Seconds that the handler ran, once it has come back.
        self.took: float | None = None
        #: When the handler has come back; its slot's connections are put in order then.
        self.came_back: float | None = None
        self.deadline: float | None = None
        #: The last reported progress (JSON text), taken by the next heartbeat or exchange.
        self.progress: str | None = None
        #: The handler has been told by `check()`; it needs no exception from outside.
        self.told = False
        self.on_stop: Callable[[Attempt, type[StopHandler]], None] | None = None
        #: What only the first one may say: "outcome", "stop", "slot", "begin".
        self._first: dict[str, Any] = {}

    @property
    def outcome(self) -> Outcome | None:
        found: tuple[Outcome, bool] | None = self._first.get("outcome")
        return None if found is None else found[0]

    @outcome.setter
    def outcome(self, instead: Outcome) -> None:
        """Instead of one that the database refuses."""
        self._first["outcome"] = (instead, self.settled)

    @property
    def settled(self) -> bool:
        """The outcome is in the database already: an atomic job wrote it in its own transaction."""
        found: tuple[Outcome, bool] | None = self._first.get("outcome")
        return found is not None and found[1]

    @property
    def stop_kind(self) -> type[StopHandler] | None:
        found: tuple[type[StopHandler], float] | None = self._first.get("stop")
        return None if found is None else found[0]

    @property
    def stopped_at(self) -> float | None:
        found: tuple[type[StopHandler], float] | None = self._first.get("stop")
        return None if found is None else found[1]

    @property
    def is_open(self) -> bool:
        """Nobody has decided it, or told it to stop."""
        return "outcome" not in self._first and "stop" not in self._first

    @property
    def begun(self) -> bool:
        """A slot has taken it: it can be stopped, and not withdrawn any more."""
        return self._first.get("begin") == "slot"

    def begin(self) -> bool:
        """A slot takes it; False: it was withdrawn."""
        return bool(self._first.setdefault("begin", "slot") == "slot")

    def withdraw(self, outcome: Outcome) -> bool:
        """Decide it, unless a slot has begun it, somebody has decided before, or has withdrawn it."""
        me = object()
        return self._first.setdefault("begin", me) is me and self.decide(outcome)

    def start(self) -> None:
        """The handler begins now; its deadline counts from here."""
        self.started = time.monotonic()
        if self.lease.timeout is not None:
            self.deadline = self.started + self.lease.timeout
        if elapsed() > self.safe_until:
            # The process was stopped, or its host suspended, while this attempt waited: the job is somebody else's by now.
            self.stop(LeaseLost)

    def stop(self, kind: type[StopHandler]) -> bool:
        """Tell the handler to stop. False when it was told before, or when it is decided already."""
        told = (kind, time.monotonic())
        if "outcome" in self._first or self._first.setdefault("stop", told) is not told:
            return False
        # Whoever sets `on_stop` looks for the stop after that, so one of the two sees the other.
        on_stop = self.on_stop
        if on_stop is not None:
            on_stop(self, kind)
        return True

    def decide(self, outcome: Outcome, *, settled: bool = False) -> bool:
        """Record what the attempt came to; False when that was decided before."""
        said = (outcome, settled)
        return self._first.setdefault("outcome", said) is said

    @property
    def has_left(self) -> bool:
        """Somebody has said `leave`."""
        return "slot" in self._first

    def leave(self, who: object) -> bool:
        """The attempt no longer occupies its slot: its handler came back, or its thread is written off. False when the
        other one has said so before."""
        return self._first.setdefault("slot", who) is who

    def check(self) -> None:
        """Raise why the handler is to stop, if it is."""
        kind = self.stop_kind
        if kind is not None:
            self.told = True
            raise kind(f"job {self.lease.job_id}")

    def set_progress(self, progress: str) -> None:
        self.progress = progress

    def take_progress(self) -> str | None:
        progress, self.progress = self.progress, None
        return progress
