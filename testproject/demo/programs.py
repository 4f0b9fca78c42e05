"""What the demo starts: programs in sessions of their own, so that a signal reaches all of one and none of another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from testproject.postgres import PROJECT_ROOT


class DemoError(Exception):
    """The demo cannot go on."""


class Program:
    """One command, which writes to the end of `log`. Its process id is its process group's, too."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        fds: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.env = {**os.environ, **(env or {})}
        self.fds = tuple(fds)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Only from the main thread: the leash tells of the death of the thread that started it."""
        leash = [sys.executable, "-m", "testproject.demo.leash", str(os.getpid())]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*leash, *self.command],
                cwd=PROJECT_ROOT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=self.fds,
            )

    @property
    def group(self) -> int | None:
        return self.process.pid if self.process is not None else None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def terminate(self) -> None:
        """Ask it to stop in order."""
        if self.process is not None and self.running:
            self.process.terminate()

    def kill(self) -> None:
        """SIGKILL for the whole process group, and wait for the end."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def stop_all(programs: Sequence[Program], patience: float, hurry: Callable[[], bool]) -> list[str]:
    """Stop them all at the same time, in order; those that take longer are killed. Returns the names of these."""
    give_up = time.monotonic() + patience
    for program in programs:
        program.terminate()
    while any(program.running for program in programs) and time.monotonic() < give_up and not hurry():
        time.sleep(0.02)
    late = [program.name for program in programs if program.running]
    for program in programs:
        program.kill()  # Of one that has ended, this is what it may have left in its group.
    return late
