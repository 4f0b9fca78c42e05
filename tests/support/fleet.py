"""Starts `manage.py jobworker` as a person or an init system would: real processes, real signals, a log each.

Every worker command gets a session of its own, so that a test may signal its whole group, and so that nothing of it
survives the test.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from testproject.postgres import PROJECT_ROOT

T = TypeVar("T")

#: Seconds that a condition may take on a busy machine. Long, since a test that passes never waits for it.
PATIENCE = 60.0

#: Short, so that tests of leases are; everything else as in production.
QUICK = {"LEASE": 2, "HEARTBEAT": 0.5, "POLL": 0.5, "BACKOFF": {"base": 0.1, "factor": 1, "cap": 1}, "GRACE": 5}

_WORKER_LINE = re.compile(r"worker ([0-9a-f-]{36}): \S+:(\d+), \d+ slots")


def wait_until(condition: Callable[[], T], what: object = "", timeout: float = PATIENCE) -> T:
    """Return the first truthy answer of `condition`; fail, saying `what` was waited for, after `timeout` seconds."""
    until = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > until:
            raise AssertionError(f"waited {timeout:g} s in vain for {what() if callable(what) else what or condition}")
        time.sleep(0.02)


class JobWorker:
    """One `jobworker` command: the supervisor that was started, and the worker processes below it."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path = PROJECT_ROOT) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The supervisor's."""
        return self.process.pid

    @property
    def text(self) -> str:
        """What it has logged so far."""
        return self.log.read_text(errors="replace")

    def started(self) -> list[tuple[str, int]]:
        """(worker id, process id) of all worker processes that have started, the latest last."""
        return [(found[1], int(found[2])) for found in _WORKER_LINE.finditer(self.text)]

    @property
    def worker_pid(self) -> int:
        """The latest worker process; waits for the first one."""
        return wait_until(self.started, self.tail)[-1][1]

    def ready(self) -> JobWorker:
        """Wait until a worker process runs (it may still be connecting)."""
        wait_until(lambda: self.started() or self.process.poll() is not None, self.tail)
        assert self.started(), self.tail()
        return self

    def logged(self, text: str, timeout: float = PATIENCE) -> None:
        wait_until(lambda: text in self.text, lambda: f"{text!r} in the log: {self.tail()}", timeout)

    def tail(self) -> str:
        return f"{self.log}:\n{self.text[-6000:]}"

    def tell(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.tail()}") from None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.tell(number)
        return self.wait()

    def processes(self) -> list[psutil.Process]:
        """The supervisor and everything below it that still runs."""
        try:
            top = psutil.Process(self.pid)
            found = [top, *top.children(recursive=True)]
        except psutil.NoSuchProcess:
            found = []
        return found + [p for p in self._session() if p not in found]

    def _session(self) -> list[psutil.Process]:
        """What is left of the session when its leader is gone."""
        found = []
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def destroy(self) -> None:
        """Whatever state it is in."""
        for _ in range(2):  # a supervisor may have forked while we looked
            for process in self.processes():
                with suppress(psutil.NoSuchProcess, ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        self.process.wait()


class Fleet:
    """Starts workers with one environment and ends them all."""

    def __init__(self, env: Mapping[str, str], folder: Path) -> None:
        self.env = {**env, "DJANGO_SETTINGS_MODULE": "tests.settings"}
        self.folder = folder
        self.workers: list[JobWorker] = []

    def start(
        self,
        *arguments: str,
        settings: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        ready: bool = True,
    ) -> JobWorker:
        """Run `jobworker` with `arguments` and `settings` (on top of QUICK); `prefix` goes before the interpreter."""
        command = [*prefix, sys.executable, "manage.py", "jobworker", *arguments]
        return self.run(command, settings=settings, env=env, ready=ready)

    def run(
        self,
        command: Sequence[str],
        *,
        settings: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        ready: bool = True,
    ) -> JobWorker:
        environment = self.env | {"RELIABLE_JOBS_JSON": json.dumps(QUICK | dict(settings or {}))} | dict(env or {})
        worker = JobWorker(command, environment, self.folder / f"worker-{len(self.workers)}.log")
        self.workers.append(worker)
        return worker.ready() if ready else worker

    def burst(self, *arguments: str, **options: Any) -> JobWorker:
        """`jobworker --burst`, already ended; ask `.process.returncode` how."""
        worker = self.start("--burst", *arguments, ready=False, **options)
        worker.wait()
        return worker

    def close(self) -> None:
        for worker in self.workers:
            worker.destroy()
