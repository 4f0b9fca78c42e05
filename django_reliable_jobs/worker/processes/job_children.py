"""Job children: the supervisor forks them for its workers, waits for them, and says how they ended."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple, NoReturn

from django_reliable_jobs.worker.handlers.isolated_runner import ChildDied
from django_reliable_jobs.worker.processes.places import ended_how
from django_reliable_jobs.worker.processes.process_group import kill_group

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
        """Wait for those that have ended, and tell their workers how. What is left of their groups is killed before the
        wait: until then nobody else gets the number."""
        for pid, child in list(self._children.items()):
            try:
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    continue
            except ChildProcessError:
                pass  # somebody else has waited for it
            else:
                kill_group(pid)
            code = ended_how(pid)
            del self._children[pid]
            with suppress(OSError):
                os.set_blocking(child.channel, False)
                with Connection(child.channel) as connection:
                    connection.send(ChildDied(-signal.SIGKILL if code is None else code))

    def kill(self, worker: int | None = None) -> None:
        """Kill the children of a worker that is gone, with their groups; without one, all of them."""
        for pid, child in self._children.items():
            if worker is None or child.worker == worker:
                kill_group(pid)

    @property
    def pids(self) -> set[int]:
        return set(self._children)
