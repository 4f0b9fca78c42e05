"""Starts actors and talks to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from testproject.postgres import PROJECT_ROOT

PATIENCE = 90.0


class Actor:
    """One process of `tests.support.guards.actor`."""

    def __init__(self, env: dict[str, str], log: Path) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.guards.actor"], cwd=PROJECT_ROOT, env=env, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip
        self.log = log
        self._lines: SimpleQueue[dict[str, Any]] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))

    def tell(self, do: str, **details: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **details}).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self, event: str | None = None) -> dict[str, Any]:
        """The next thing that it says; of this kind, if one is named."""
        try:
            said = self._lines.get(timeout=PATIENCE)
        except Empty:
            raise AssertionError(f"it says nothing:\n{self.log.read_text()[-4000:]}") from None
        assert event is None or said.get("event") == event, said
        return said

    def ask(self, do: str, **details: Any) -> dict[str, Any]:
        self.tell(do, **details)
        return self.hear()

    def quiet(self, seconds: float) -> bool:
        """Whether it says nothing for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not self._lines.empty():
                return False
            time.sleep(0.01)
        return True

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        for number in (signal.SIGKILL, signal.SIGCONT):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                pass
        self.process.wait(30)


class Troupe:
    """The actors of one test, all on the same store."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self.env = env
        self.folder = folder
        self.all: list[Actor] = []

    def start(self, count: int = 1, **env: str) -> list[Actor]:
        actors = [Actor(self.env | env, self.folder / f"actor-{len(self.all) + i}.log") for i in range(count)]
        self.all += actors
        for actor in actors:
            actor.hear("ready")
        return actors

    def close(self) -> None:
        for actor in self.all:
            actor.end()
