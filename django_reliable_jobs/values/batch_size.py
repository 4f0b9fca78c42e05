"""How many rows a statement takes at once, learnt from how long it takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error as DatabaseTrouble


class BatchSize:
    """Half as many rows after a statement that failed or took more than `long` seconds, up to `most` again after quick ones.

    A statement that is given up writes nothing: at the same size it would be given up for ever. Used by one thread.
    """

    def __init__(self, most: int, long: float, first: int | None = None) -> None:
        self.most = most
        self.now = most if first is None else min(most, first)
        self.long = long

    @contextmanager
    def of_one(self) -> Iterator[int]:
        """The size of one statement, whose time is taken."""
        began = time.monotonic()
        try:
            yield self.now
        except DatabaseTrouble:
            self.now = max(1, self.now // 2)
            raise
        took = time.monotonic() - began
        if took > self.long:
            self.now = max(1, self.now // 2)
        elif took < self.long / 8:
            self.now = min(self.most, 2 * self.now)
