"""For how long the worker has been in touch with the database without a break.

After an outage every lease has expired, those of living workers too: whoever comes back first must not take them all.
So a worker heartbeats first, and reaps only after one LEASE of uninterrupted contact (protocol 6). A worker that was
stopped (SIGSTOP, a suspended machine) had no contact either.

One kind of lease need not wait that long: one that ran out later than half a LEASE into the contact. Its owner heartbeats
at least every third of a LEASE and, after an outage, at once when it has reached the database again; it had half a LEASE for
that in which we had no trouble. So a worker that starts alone after the whole fleet was killed has its jobs running again as
soon as their leases are over, and not one LEASE after its own start.

Nor must a step of the database's clock take everything (a correction by NTP, a failover to a host with another clock): each
heartbeat reads that clock and compares how far it and this host's have come. A step forward is treated as lost contact; the
reaping statement itself asks whether it is later than it can be, so a step after the last heartbeat does no harm either.
"""

from __future__ import annotations

import math
import threading

from django_reliable_jobs.values.elapsed import elapsed


class DatabaseContact:
    """All times are those of `elapsed()`, in seconds, but for the database's clock."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        #: What is less than this leaves every lease that was extended in time some of its length.
        self._tolerance = lease / 4
        self._lock = threading.Lock()
        self._since: float | None = None
        self._last = 0.0
        #: What the database's clock has said, and when it was asked.
        self._clock: tuple[float, float] | None = None

    def made(self) -> None:
        """A heartbeat went through."""
        with self._lock:
            now = elapsed()
            if self._since is None or now - self._last > self._lease:
                self._since = now
            self._last = now

    def read_clock(self, clock: float, asked_at: float) -> float:
        """The database's clock said this. For how many seconds it was set forward since it was last asked; 0 mostly.

        Then contact begins anew: the leases of the living have run out as well, and their owners have to extend them first.
        """
        with self._lock:
            now, before = elapsed(), self._clock
            self._clock = (clock, asked_at)
            if before is None:
                return 0.0
            # At the longest so much time has passed between the two answers.
            step = (clock - before[0]) - (now - before[1])
            if step <= self._tolerance:
                return 0.0
            self._since = self._last = now
            return step

    def may_reap(self) -> tuple[float, float]:
        """`reach`, and until when by the database's clock: if that says it is later, it was set forward since it was read."""
        with self._lock:
            now = elapsed()
            if self._clock is None:
                return self._reach(now), -math.inf
            clock, asked_at = self._clock
            return self._reach(now), clock + (now - asked_at) + self._tolerance

    def lost(self) -> None:
        """A statement failed for want of a connection."""
        with self._lock:
            self._since = None

    def wait_for_reaping(self) -> float:
        """Seconds until this worker may reap some leases; 0 or less: now. See `reach`."""
        with self._lock:
            return self._lease / 2 - self._lasted(elapsed())

    def reach(self) -> float:
        """For how many seconds a lease may have been over that is reaped now: `inf` after a LEASE of contact."""
        with self._lock:
            return self._reach(elapsed())

    def _reach(self, now: float) -> float:
        lasted = self._lasted(now)
        return math.inf if lasted >= self._lease else max(0.0, lasted - self._lease / 2)

    def _lasted(self, now: float) -> float:
        """Seconds since the contact began; 0 when there is none."""
        return 0.0 if self._since is None or now - self._last > self._lease else now - self._since
