"""For how long the worker has been in touch with the database without a break.

After an outage every lease has expired, those of living workers too: whoever comes back first must not take them all.
So a worker heartbeats first, and reaps only after one LEASE of uninterrupted contact (protocol 6). A worker that was
stopped (SIGSTOP, a suspended machine) had no contact either.
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
        """Seconds until this worker may reap; 0 or less: now."""
        with self._lock:
            now = time.monotonic()
            if self._since is None or now - self._last > self._lease:
                return self._lease
            return self._since + self._lease - now
