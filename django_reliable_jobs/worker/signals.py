"""Signal handlers that stay with the process that installed them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from types import FrameType


def install(numbers: Iterable[int], handler: Callable[[], None]) -> dict[int, object]:
    """Call `handler` for these signals, in this process; returns what handled them before.

    In a process that is forked from this one, a handler's `multiprocessing` for example, the signal means what it means
    by default: it is not this worker that somebody wants to end.
    """
    me = os.getpid()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if os.getpid() == me:
            handler()
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    return {number: signal.signal(number, on_signal) for number in numbers}
