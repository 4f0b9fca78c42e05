"""A fleet of pods: each a `manage.py jobworker` in a process group of its own, started again when it ends.

Each start of a pod has a log file of its own, `pod-<number>.<start>.log`, which is kept.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from testproject.postgres import PROJECT_ROOT
from tests.chaos.timeline import Timeline

ROUND = 0.02

#: What a worker says first: process id and worker id.
WORKER = re.compile(r"\[(\d+)\] .*: worker ([0-9a-f-]{36}): ")
#: Reads process groups until its input ends, which is when the test process closes it or dies, and kills them.
UNDERTAKER = 'while read -r group; do groups="$groups -$group"; done; [ -z "$groups" ] || kill -KILL -- $groups'


class Pod:
    """One `manage.py jobworker`. `pid` is the supervisor's, and the process group's."""

    def __init__(self, number: int, directory: Path, environment: Mapping[str, str], options: Sequence[str]) -> None:
        self.number = number
        self.directory = directory
        self.environment = dict(environment)
        self.options = list(options)
        self.starts = 0
        self.respawn = True
        self.process: subprocess.Popen[bytes] | None = None
        #: Process groups of all starts: a worker whose supervisor was killed is alone, but still of its group.
        self.groups: list[int] = []

    def __str__(self) -> str:
        return f"pod {self.number}"

    def start(self) -> int:
        """Returns the process group."""
        self.log = self.directory / f"pod-{self.number}.{self.starts}.log"
        self.starts += 1
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "jobworker", *self.options],
                cwd=PROJECT_ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        self.groups.append(self.process.pid)
        return self.process.pid

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def children(self) -> list[int]:
        """Process ids of the supervisor's living children: workers, and the children of isolated jobs."""
        return [pid for pid in children_of(self.pid) if alive(pid)]

    def workers(self) -> list[int]:
        """Those children that have said in the log that they are workers."""
        greeted = {
            int(found[1])
            for line in self.log.read_text(errors="replace").splitlines()
            if (found := WORKER.search(line))
        }
        return [pid for pid in self.children() if pid in greeted]

    def processes(self) -> set[int]:
        return {self.pid, *self.children()}

    def signal(self, number: int) -> None:
        """To the supervisor alone, as an orchestrator sends SIGTERM."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def children_of(pid: int) -> list[int]:
    """Linux tells at once; elsewhere psutil looks through all processes."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        if Path("/proc/self").exists():
            return []
    with suppress(psutil.Error):
        return [child.pid for child in psutil.Process(pid).children()]
    return []


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


class Fleet:
    """Pods by number. `environments` has one entry a pod."""

    def __init__(
        self,
        directory: Path,
        environments: Sequence[Mapping[str, str]],
        timeline: Timeline,
        options: Sequence[str] = (),
    ) -> None:
        self.timeline = timeline
        self.pods = [Pod(number, directory, one, options) for number, one in enumerate(environments)]
        self._stop = threading.Event()
        self._watch = threading.Thread(target=self._run, name="fleet", daemon=True)
        self._seen: set[int] = set()
        self._statuses: dict[str, int] | None = None

    def __enter__(self) -> Self:
        # Whatever ends the tests (a timeout, SIGKILL), no fleet is left behind.
        self._undertaker = subprocess.Popen(
            ["/bin/sh", "-c", UNDERTAKER], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        for pod in self.pods:
            self._start(pod)
        self._watch.start()
        return self

    def _start(self, pod: Pod) -> None:
        group = pod.start()
        assert self._undertaker.stdin is not None
        self._undertaker.stdin.write(b"%d\n" % group)
        self._undertaker.stdin.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        """Note deaths and start pods again."""
        looked_at = time.monotonic()
        while not self._stop.wait(ROUND):
            now = time.monotonic()
            self._seen |= {pid for pod in self.pods for pid in pod.processes()}
            for pid in [pid for pid in self._seen if not alive(pid)]:
                self._seen.discard(pid)
                self.timeline.died(pid, looked_at)
            looked_at = now
            for pod in self.pods:
                if pod.respawn and not pod.running:
                    self._start(pod)

    def running(self) -> Iterator[Pod]:
        return (pod for pod in self.pods if pod.running)

    def kill(self, pid: int) -> None:
        """SIGKILL one process. Its last moment is the one before the signal."""
        self.timeline.died(pid, time.monotonic())
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def kill_pod(self, pod: Pod) -> None:
        """SIGKILL the whole tree, as a machine dies."""
        for pid in pod.processes():
            self.timeline.died(pid, time.monotonic())
        pod.signal_group(signal.SIGKILL)

    def stop(self, patience: float = 20.0) -> dict[str, int]:
        """SIGTERM to all pods; exit status by pod. What does not stop is killed, and nothing is left behind."""
        if self._statuses is not None:
            return self._statuses
        self._stop.set()
        if self._watch.is_alive():
            self._watch.join()
        for pod in self.running():
            pod.signal_group(signal.SIGCONT)
            pod.signal(signal.SIGTERM)
        self._statuses = statuses = {}
        until = time.monotonic() + patience
        for pod in self.pods:
            if pod.process is None:
                continue
            with suppress(subprocess.TimeoutExpired):
                pod.process.wait(max(0.1, until - time.monotonic()))
            for group in pod.groups:
                with suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            statuses[str(pod)] = pod.process.wait()
        self._undertaker.kill()
        self._undertaker.communicate()
        return statuses
