"""Whether a worker process is worn out, so that a fresh one should take over."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from django_reliable_jobs.running import interrupt
from django_reliable_jobs.worker.handlers.slots import SlotPool
from django_reliable_jobs.worker.leases.held_leases import HeldLeases
from django_reliable_jobs.worker.options import WorkerOptions

logger = logging.getLogger("django_reliable_jobs.worker")

#: Seconds from its start on in which a worker's memory is no reason to replace it: its successor would use as much.
RSS_AFTER = 10.0
#: After so many stop exceptions the process is replaced even if it is never idle.
MOST_STOPS = 100


class Wear:
    """Of one worker process. `since` is when it was found worn out first (monotonic)."""

    def __init__(self, options: WorkerOptions, held_leases: HeldLeases, pool: SlotPool, *, supervised: bool) -> None:
        self._options = options
        self._held_leases = held_leases
        self._pool = pool
        self._supervised = supervised
        self._started = time.monotonic()
        self.since: float | None = None

    @property
    def worn_out(self) -> bool:
        why = self._why()
        if why and self.since is None:
            self.since = time.monotonic()
            logger.info("a fresh process is to take over from this worker: %s", why)
        return bool(why)

    def _why(self) -> str:
        lost = self._pool.written_off
        if lost and (lost >= self._pool.size or not self._pool.occupied):
            return f"{lost} of its threads are written off"
        if self._may_be_damaged():
            return f"{interrupt.raised()} of its handlers were stopped by an exception"
        limit = self._options.max_jobs_per_process
        if limit is not None and self._held_leases.begun_in_all() >= limit:
            return f"it has begun {self._held_leases.begun_in_all()} jobs"
        most = self._options.max_rss
        if most is not None and time.monotonic() - self._started > RSS_AFTER and _rss_mib() > most:
            return f"it uses more than {most} MiB"
        return ""

    def _may_be_damaged(self) -> bool:
        """A stop exception may have left a lock of any library taken: replace the process when that costs nothing."""
        if not self._supervised or self._options.burst or self._options.max_jobs is not None:
            return False
        return interrupt.raised() >= (1 if not self._pool.occupied else MOST_STOPS)


def _rss_mib() -> float:
    """Resident memory of this process in MiB; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, ValueError, IndexError):
        return 0.0
