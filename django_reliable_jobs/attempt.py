"""One running attempt: what the slot, the watchdog, the heartbeat and the handler's context share.

Who decides. Several threads may want to say what an attempt came to: the slot when the handler returns, the watchdog at
the deadline, the heartbeat when the lease is lost. `decide` takes the first one and refuses the others, so exactly one
outcome is offered to the database; whether that one is written is then decided by the row's token.

Who stops. `stop` is told once why (the first reason stays) and calls what the slot put into `on_stop`: cancel the
asyncio task, cancel the running query, raise the exception in the thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from django_reliable_jobs.errors import LeaseLost, StopHandler
from django_reliable_jobs.lease import Lease
from django_reliable_jobs.outcome import Outcome

Clock = Callable[[], float]


class Attempt:
    """Times are `time.monotonic()` seconds of this process; a host's wall clock has no say."""

    __slots__ = ("_lock", "deadline", "key", "lease", "on_stop", "outcome", "progress", "safe_until", "settled", "started",
                 "stop_kind", "stopped_at", "told", "took")  # fmt: skip

    def __init__(self, lease: Lease, safe_until: float = float("inf")) -> None:
        self.lease = lease
        self.key = lease.key
        #: Until when the lease is certainly ours: the last extension was asked for one LEASE before this.
        self.safe_until = safe_until
        self.started: float | None = None
        #: Seconds that the handler ran, once it has come back.
        self.took: float | None = None
        self.deadline: float | None = None
        self.outcome: Outcome | None = None
        #: The outcome is in the database already: an atomic job wrote it in its own transaction.
        self.settled = False
        #: The last reported progress (JSON text), taken by the next heartbeat or exchange.
        self.progress: str | None = None
        self.stop_kind: type[StopHandler] | None = None
        self.stopped_at: float | None = None
        #: The handler has been told by `check()`; it needs no exception from outside.
        self.told = False
        self.on_stop: Callable[[Attempt, type[StopHandler]], None] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """The handler begins now; its deadline counts from here."""
        self.started = time.monotonic()
        if self.lease.timeout is not None:
            self.deadline = self.started + self.lease.timeout
        if self.started > self.safe_until:
            # The process was stopped while this attempt waited for a slot: the job is somebody else's by now.
            self.stop(LeaseLost)

    def stop(self, kind: type[StopHandler]) -> bool:
        """Tell the handler to stop. False when it was told before, or when it is decided already."""
        with self._lock:
            if self.stop_kind is not None or self.outcome is not None:
                return False
            self.stop_kind = kind
            self.stopped_at = time.monotonic()
            on_stop = self.on_stop
        if on_stop is not None:
            on_stop(self, kind)
        return True

    def decide(self, outcome: Outcome, *, settled: bool = False) -> bool:
        """Record what the attempt came to; False when that was decided before."""
        with self._lock:
            if self.outcome is not None:
                return False
            self.outcome = outcome
            self.settled = settled
            return True

    def check(self) -> None:
        """Raise why the handler is to stop, if it is."""
        if self.stop_kind is not None:
            self.told = True
            raise self.stop_kind(f"job {self.lease.job_id}")

    def set_progress(self, progress: str) -> None:
        self.progress = progress

    def take_progress(self) -> str | None:
        progress, self.progress = self.progress, None
        return progress
