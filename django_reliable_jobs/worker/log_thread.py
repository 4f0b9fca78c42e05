"""Logs for threads that may not wait for a log handler's lock, which a stopped handler can leave taken for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class LogThread(threading.Thread):
    """Calls what it is given, one after the other."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._lines: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]] | None] = SimpleQueue()

    def say(self, log: Callable[..., object], *args: Any) -> None:
        """Have `log(*args)` called soon. Waits for nobody."""
        self._lines.put((log, args))

    def stop(self) -> None:
        self._lines.put(None)

    def run(self) -> None:
        while (line := self._lines.get()) is not None:
            log, args = line
            log(*args)
