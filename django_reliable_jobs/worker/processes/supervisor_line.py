"""What a worker process and its supervisor say to each other: lines of text over one socket.

| from | line | meaning |
| --- | --- | --- |
| worker | `child`, with one end of a channel | fork a child process for an isolated job |
| worker | `recycle` | may a fresh process take over? Asked again every second until it is answered with `drain` |
| worker | `ran N` | it ends after N jobs; said where `--max-jobs` counts them |
| supervisor | `drain` | your successor has started: claim nothing more, and end when nothing runs any more |
| supervisor | `go on` | not now: your own predecessor still lives, or no process could be started |
| supervisor | `dead ID TOKENS` | this worker process has died: take its leases back; only these had begun (`?`: not known) |

The end of the file says that the other one is gone. Nobody waits for an answer: a supervisor that stands still keeps no
worker from its work.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from uuid import UUID

RECYCLE = "recycle"
DRAIN = "drain"
GO_ON = "go on"

_DEAD = "dead "
_RAN = "ran "

#: Bytes and descriptors that the supervisor takes from one worker at a time.
AT_ONCE = 1024
CHANNELS_AT_ONCE = 16


def dead_line(worker: UUID, begun: Sequence[int] | None) -> str:
    return f"{_DEAD}{worker} {'?' if begun is None else ','.join(map(str, begun))}"


def dead_of(line: str) -> tuple[UUID, tuple[int, ...] | None] | None:
    """The dead worker, and which tokens had begun; None for any other line."""
    if not line.startswith(_DEAD):
        return None
    worker, _, tokens = line.removeprefix(_DEAD).partition(" ")
    return UUID(worker), None if tokens == "?" else tuple(int(token) for token in tokens.split(",") if token)


def ran(jobs: int) -> str:
    return f"{_RAN}{jobs}"


def ran_of(line: str) -> int:
    """How many jobs the worker says it ran; 0 for any other line."""
    return int(line.removeprefix(_RAN)) if line.startswith(_RAN) else 0


class SupervisorLine:
    """The worker's end. Used by several threads."""

    def __init__(self, supervisor: socket.socket) -> None:
        self._supervisor = supervisor
        self._lock = threading.Lock()

    def child(self) -> Connection:
        """The channel to a new child. Raises `OSError` when the supervisor is gone."""
        ours, theirs = socket.socketpair()
        with theirs:
            with self._lock:
                socket.send_fds(self._supervisor, [b"child\n"], [theirs.fileno()])
        return Connection(ours.detach())

    def say(self, line: str) -> None:
        """Nothing, when the supervisor is gone."""
        with suppress(OSError), self._lock:
            self._supervisor.sendall(f"{line}\n".encode())

    def lines(self) -> Iterator[str]:
        """What the supervisor says, until it is gone."""
        rest = b""
        with suppress(OSError):
            while received := self._supervisor.recv(AT_ONCE):
                *lines, rest = (rest + received).split(b"\n")
                yield from (line.decode() for line in lines)


class WorkerLine:
    """The supervisor's end: it never waits."""

    def __init__(self, worker: socket.socket) -> None:
        worker.setblocking(False)
        self._worker = worker
        self._rest = b""
        #: The worker has closed its end: there is nothing to wait for here, its process ends.
        self.over = False

    def fileno(self) -> int:
        return self._worker.fileno()

    def say(self, line: str) -> None:
        """A worker that reads nothing (it is stopped) or is gone does not hear it."""
        with suppress(OSError):
            self._worker.send(f"{line}\n".encode())

    def hear(self) -> tuple[list[str], list[int]]:
        """The lines that the worker has sent, and the descriptors that came with them."""
        try:
            received, channels, _, _ = socket.recv_fds(self._worker, AT_ONCE, CHANNELS_AT_ONCE)
        except BlockingIOError:
            return [], []
        except OSError:
            received, channels = b"", []
        self.over = not received
        *lines, self._rest = (self._rest + received).split(b"\n")
        return [line.decode(errors="replace") for line in lines], channels

    def close(self) -> None:
        self._worker.close()
