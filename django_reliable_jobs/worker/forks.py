"""Job children: the supervisor forks them for its workers, waits for them, and says how they ended."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple, NoReturn

from django_reliable_jobs.worker.isolation import ChildDied

logger = logging.getLogger("django_reliable_jobs.supervisor")


class JobChild(NamedTuple):
    """`worker` is the process that asked for it; `channel` our copy of the child's end, for its last message."""

    worker: int
    channel: int


class JobChildren:
    """All job children of a supervisor. `live` is what a child does with its end of the channel; it never returns."""

    def __init__(self, live: Callable[[int, int], NoReturn]) -> None:
        self._live = live
        self._children: dict[int, JobChild] = {}

    def serve(self, worker: int, channels: Sequence[int]) -> None:
        """Fork the children that a worker has asked for, each with its end of a channel."""
        for channel in channels:
            try:
                pid = os.fork()
            except OSError as error:
                logger.error("cannot start a child process for an isolated job: %s", error)
                os.close(channel)
                continue
            if pid == 0:
                for other in self._children.values():
                    os.close(other.channel)
                for other_channel in channels:
                    if other_channel != channel:
                        with suppress(OSError):
                            os.close(other_channel)
                self._live(worker, channel)
            self._children[pid] = JobChild(worker, channel)

    def reap(self) -> None:
        """Wait for those that have ended, and tell their workers how."""
        for pid, child in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._children[pid]
                with suppress(OSError):
                    os.set_blocking(child.channel, False)
                    connection = Connection(child.channel)
                    connection.send(ChildDied(os.waitstatus_to_exitcode(status)))
                    connection.close()

    def kill(self, worker: int | None = None) -> None:
        """Kill the children of a worker that is gone; without one, all of them."""
        for pid, child in self._children.items():
            if worker is None or child.worker == worker:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    @property
    def pids(self) -> set[int]:
        return set(self._children)
