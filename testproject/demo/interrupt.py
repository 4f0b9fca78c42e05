"""Ctrl-C, SIGTERM and a closed terminal, all of which mean: stop in order."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType


class Interrupt:
    """Counts the signals, and cuts `wait` short. Nothing is raised: a clean-up that has begun is not torn apart."""

    def __init__(self) -> None:
        self.count = 0
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._count)

    def _count(self, number: int, frame: FrameType | None) -> None:
        self.count += 1

    def __bool__(self) -> bool:
        return self.count > 0

    def wait(self, seconds: float) -> None:
        """Until a signal comes, at most so long."""
        select.select([self._read], [], [], seconds)
        try:
            os.read(self._read, 4096)
        except BlockingIOError:
            pass
