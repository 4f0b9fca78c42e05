"""A line of a loop comes at most once a minute, whatever goes wrong in it."""

from __future__ import annotations

import time
from collections.abc import Hashable

#: Seconds between two lines about the same thing.
MINUTE = 60.0
#: Things that are remembered; with more of them all are forgotten.
MOST = 1000


class LogLimit:
    """Which lines are due. `due(what)` is for one thing (a part of the worker, a name); any thread may ask.

    It takes no lock, which a handler that is stopped in the middle would keep: two threads may both be told yes.

        if limit.due("heartbeat"):
            logger.exception("a heartbeat failed")
    """

    def __init__(self, every: float = MINUTE) -> None:
        self._every = every
        self._said: dict[Hashable, float] = {}

    def due(self, what: Hashable) -> bool:
        """Whether nothing was said of it in the last minute; then this call counts as saying it."""
        now = time.monotonic()
        if now - self._said.get(what, float("-inf")) < self._every:
            return False
        if len(self._said) >= MOST:
            self._said = {each: said for each, said in self._said.copy().items() if now - said < self._every}
            if len(self._said) >= MOST:
                self._said = {}
        self._said[what] = now
        return True

    def forget(self, what: Hashable) -> None:
        """It is well again: its next trouble is news."""
        self._said.pop(what, None)
