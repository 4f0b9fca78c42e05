"""For how long the worker has been in touch with the database without a break.

After an outage every lease has expired, those of living workers too: whoever comes back first must not take them all.
So a worker heartbeats first, and reaps only after one LEASE of uninterrupted contact (protocol 6). A worker that was
stopped (SIGSTOP, a suspended machine) had no contact either.

One kind of lease need not wait that long: one that ran out later than half a LEASE into the contact. Its owner heartbeats
at least every third of a LEASE and, after an outage, at once when it has reached the database again; it had half a LEASE for
that in which we had no trouble. So a worker that starts alone after the whole fleet was killed has its jobs running again as
soon as their leases are over, and not one LEASE after its own start.
"""

from __future__ import annotations

import threading
import time


class Contact:
    """All times are monotonic seconds."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._lock = threading.Lock()
        self._since: float | None = None
        self._last = 0.0

    def made(self) -> None:
        """A heartbeat went through."""
        with self._lock:
            now = time.monotonic()
            if self._since is None or now - self._last > self._lease:
                self._since = now
            self._last = now

    def lost(self) -> None:
        """A statement failed for want of a connection."""
        with self._lock:
            self._since = None

    def wait_for_reaping(self) -> float:
        """Seconds until this worker may reap some leases; 0 or less: now. See `reach`."""
        return self._lease / 2 - self._lasted()

    def reach(self) -> float:
        """For how many seconds a lease may have been over that is reaped now: `inf` after a LEASE of contact."""
        lasted = self._lasted()
        return float("inf") if lasted >= self._lease else max(0.0, lasted - self._lease / 2)

    def _lasted(self) -> float:
        """Seconds since the contact began; 0 when there is none."""
        with self._lock:
            now = time.monotonic()
            return 0.0 if self._since is None or now - self._last > self._lease else now - self._since
