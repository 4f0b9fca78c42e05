"""One contender with one variant's settings, and the database that it plays in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import machine, marks
from benchmarks.child import load
from benchmarks.contenders.base import DATABASE, OPTIONS
from benchmarks.database import Server
from testproject.postgres import PROJECT_ROOT

START_PATIENCE = 60.0  # seconds until a worker has run its first job
STOP_PATIENCE = 5.0


class RunFailed(Exception):
    """A contender did not do what the run is about; the message says what it said."""


@dataclass(frozen=True)
class Variant:
    """A contender with its settings. `scale`: times the jobs of a drain. `supervised`: a process of its own watches the
    one that runs the jobs."""

    contender: str
    label: str
    options: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0
    supervised: bool = False

    def __str__(self) -> str:
        return f"{self.contender}: {self.label}"


@dataclass
class Stage:
    """`folder` is for the marks and the workers' output; `python` runs the contender."""

    server: Server
    variant: Variant
    folder: Path
    python: str = sys.executable
    database: str = ""
    _workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.contender = load(self.variant.contender)
        self.marks = self.folder / "marks"
        self.log = self.folder / f"{self.variant.contender}.log"
        self._template = f"template_{self.variant.contender}"

    # --- the database -----------------------------------------------------------------------------

    def prepare(self) -> None:
        """The contender's tables, made once on a server; every `fresh` database is a copy."""
        if self._template not in self.server.templates:
            self.server.create(self._template)
            self.database = self._template
            self.child("setup")
            self.server.templates.add(self._template)

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """A database and a marks file that nobody has used."""
        outer = self.database
        self.database = f"run_{self.variant.contender}_{next(self.server.serial)}"
        self.server.create(self.database, self._template)
        self.forget_marks()
        try:
            yield
        finally:
            self.kill_workers()
            self.server.drop(self.database)
            self.database = outer

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection:
        return self.server.connect(self.database, autocommit=autocommit)

    def tidy(self, *, vacuum: bool = True) -> None:
        """What autovacuum and the checkpointer would do sooner or later is done now, and not during the run."""
        with self.connect() as connection:
            connection.execute("VACUUM (ANALYZE)" if vacuum else "ANALYZE")
            connection.execute("CHECKPOINT")

    def unfinished(self, connection: psycopg.Connection) -> int:
        row = connection.execute(self.contender.unfinished).fetchone()
        assert row is not None
        return int(row[0])

    # --- its processes ----------------------------------------------------------------------------

    def child(self, step: str, *arguments: object, timeout: float = 600.0) -> Any:
        result = subprocess.run(
            self._command(step, *arguments), env=self._environment(), capture_output=True, timeout=timeout, check=False
        )
        if result.returncode:
            raise RunFailed(f"{self.variant.contender} {step}:\n{result.stderr.decode(errors='replace')[-3000:]}")
        return json.loads(result.stdout.splitlines()[-1])

    def start_worker(self) -> int:
        """Its process id. The worker is the leader of a session of its own."""
        with self.log.open("ab") as log:
            worker = subprocess.Popen(
                self._command("work"), env=self._environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._workers.append(worker)
        return worker.pid

    @property
    def workers(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def stop_workers(self) -> None:
        """In order, as a deploy does; what has not ended by then is killed."""
        for worker in self._workers:
            worker.terminate()
        give_up = time.monotonic() + STOP_PATIENCE
        while any(worker.poll() is None for worker in self._workers) and time.monotonic() < give_up:
            time.sleep(0.01)
        self.kill_workers()

    def kill_workers(self) -> None:
        """SIGKILL to all of their processes at once."""
        machine.kill(self.workers)
        for worker in self._workers:
            worker.wait()
        self._workers.clear()

    def _command(self, step: str, *arguments: object) -> Sequence[str]:
        return [self.python, "-m", "benchmarks.child", self.variant.contender, step, *map(str, arguments)]

    def _environment(self) -> dict[str, str]:
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "DATABASE_URL"))}
        return mine | {
            marks.FILE: str(self.marks),
            DATABASE: json.dumps(self.server.address(self.database)),
            OPTIONS: json.dumps(self.variant.options),
            "PYTHONPATH": str(PROJECT_ROOT),
        }

    # --- its jobs ---------------------------------------------------------------------------------

    def forget_marks(self) -> None:
        self.marks.write_bytes(b"")

    def marked(self) -> int:
        return marks.count(self.marks)

    def wait_for_marks(self, wanted: int, timeout: float) -> bool:
        return self.wait(lambda: self.marked() >= wanted, timeout)

    def wait(self, condition: Callable[[], bool], timeout: float, pause: float = 0.002) -> bool:
        """False when it has not come true in time, or when all workers have ended."""
        give_up = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > give_up or (self._workers and all(w.poll() is not None for w in self._workers)):
                return False
            time.sleep(pause)
        return True

    def wait_for_first_mark(self) -> None:
        if not self.wait_for_marks(1, START_PATIENCE):
            said = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
            raise RunFailed(f"{self.variant.contender}: no job began within {START_PATIENCE:.0f} s. {said}")
