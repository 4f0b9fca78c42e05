"""What a process does last, each thing within a time: neither a dead network nor a lock that nobody releases stops it."""

from __future__ import annotations

import _thread
import logging
import sys
from collections.abc import Callable
from contextlib import suppress

#: Seconds that what was logged and printed gets to be written.
FLUSH = 1.0


def within(seconds: float, function: Callable[[], None]) -> None:
    """Call it in a thread of its own, and wait so long. No `threading`, whose own locks a stopped handler may have left
    taken."""
    ended = _thread.allocate_lock()
    ended.acquire()

    def call() -> None:
        try:
            function()
        finally:
            ended.release()

    with suppress(Exception):  # no more threads
        _thread.start_new_thread(call, ())
        ended.acquire(timeout=seconds)


def flush() -> None:
    """Have what was logged and printed written. A thread that hangs may hold a lock of a log handler."""
    within(FLUSH, _flush)


def _flush() -> None:
    with suppress(Exception):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
