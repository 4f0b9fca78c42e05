"""Whether the worker's database role may do what a worker does; if not, everybody is told the GRANT that is missing.

It is asked for at the start and all the time: rights can be taken away, and an upgrade of this package may bring a table. What
can be done without the missing right goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django.db import connections

from django_reliable_jobs.store import privileges
from django_reliable_jobs.store.worker_row import WorkerState

logger = logging.getLogger("django_reliable_jobs.worker")

#: Seconds between two looks, while all is well and while it is not; between two log lines.
EVERY, SOON, SAY_EVERY = 15.0, 2.0, 60.0
#: Characters of the worker's row.
LONGEST = 2000


class Rights:
    """Used by one thread at a time. `changed` is called when what the worker's row says is to be written soon."""

    def __init__(self, alias: str, me: WorkerState, changed: Callable[[], None]) -> None:
        self.alias = alias
        self.me = me
        self._changed = changed
        self._look_at = 0.0
        self._say_at = 0.0
        self._problem = ""

    def when_due(self) -> None:
        if time.monotonic() >= self._look_at:
            self.look()

    def look(self) -> bool:
        """Whether nothing is missing. Raises what the database raises."""
        if connections[self.alias].vendor != "postgresql":
            return True
        missing = privileges.missing(self.alias)
        now = time.monotonic()
        self._look_at = now + (SOON if missing else EVERY)
        problem = f"Rights are missing in the database: {' '.join(missing)}"[:LONGEST] if missing else ""
        if problem and now >= self._say_at:
            self._say_at = now + SAY_EVERY
            logger.error("this worker cannot do all its work. %s", problem)
        if problem != self._problem:
            if not problem:
                logger.info("this worker has the rights in the database that it needs")
                self._say_at = 0.0
            if self.me.problem in ("", self._problem):  # not what another part of the worker says
                self.me.problem = problem
            self._problem = problem
            self._changed()
        return not missing
