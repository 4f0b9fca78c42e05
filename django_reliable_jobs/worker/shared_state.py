"""What a worker process shares with its supervisor: which of its threads still move, and which of its jobs have begun.

A few pages of memory that are mapped before the fork. The supervisor looks at the counters while the process lives, and at
the rest when it is dead, by whatever: a handler's `os._exit`, a kill, the kernel's memory killer.

Everything is a word of eight bytes that is written in one step, mostly by one thread. No lock is taken: a handler that is
stopped between a lock's acquire and its `try` leaves it taken for ever, and this is what such a thing is found out by.
"""

from __future__ import annotations

import mmap
from collections import deque
from threading import get_ident
from typing import Final

#: The threads whose moves are counted; their counters come first.
PARTS: Final = ("main", "engine", "watchdog", "heartbeat", "maintenance")
MAIN, ENGINE, WATCHDOG, HEARTBEAT, MAINTENANCE = range(len(PARTS))

_FULL = len(PARTS)  # the table of begun jobs was full once, so that it no longer says which have not begun
_TABLE = _FULL + 1
_PAIR = 2  # a token, and its job's id


class SharedState:
    """Made before the fork for a process that holds at most `leases` leases at a time; of more, all count as begun."""

    def __init__(self, leases: int) -> None:
        words = _TABLE + _PAIR * leases
        self._words = memoryview(mmap.mmap(-1, 8 * words)).cast("Q")
        self._free = deque(range(_TABLE, words, _PAIR))
        self._part_of: dict[int, int] = {}
        #: The parts whose threads run just now.
        self.running: set[int] = set()

    # -- in the worker process

    def join(self, part: int) -> None:
        """From now on `moved` in this thread is a move of that part."""
        self._part_of[get_ident()] = part
        self._words[part] += 1
        self.running.add(part)

    def leave(self) -> None:
        """This thread ends: it is not expected to move any more."""
        part = self._part_of.pop(get_ident(), None)
        if part is not None:
            self.running.discard(part)

    def moved(self, thread: int | None = None) -> None:
        """This thread, or `thread`, goes on. Nothing happens for a thread that is no part."""
        part = self._part_of.get(get_ident() if thread is None else thread)
        if part is not None:
            self._words[part] += 1

    def begin(self, token: int, job_id: int) -> int | None:
        """Before the handler is called. Returns what `recorded` wants to have back."""
        try:
            at = self._free.popleft()
        except IndexError:
            self._words[_FULL] = 1
            return None
        self._words[at + 1] = job_id
        self._words[at] = token
        return at

    def recorded(self, begun: int) -> None:
        """The database has recorded what that attempt came to, or it is somebody else's: it is no lease of ours any more."""
        self._words[begun] = 0
        self._free.append(begun)

    # -- anywhere

    def moves(self) -> tuple[int, ...]:
        """How often each of `PARTS` has moved."""
        return tuple(self._words[: len(PARTS)])

    def begun(self) -> dict[int, int] | None:
        """Of the attempts that are begun and not recorded: the job's id by the token. None when not all are known."""
        if self._words[_FULL]:
            return None
        table = self._words[_TABLE:].tolist()
        return {token: job_id for token, job_id in zip(table[::_PAIR], table[1::_PAIR], strict=True) if token}
