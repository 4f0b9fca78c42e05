"""`isolation="process"`: the handler runs in a child process that can be killed.

The child is forked by the supervisor, which has neither threads nor database connections to inherit; a slot asks for
one over the worker's line to it, and hands over one end of a channel. The child runs jobs that
come down the channel with the same `Runner` that a slot has, and sends back progress and outcomes. When it has died,
the supervisor says so at the child's end of the channel, with its exit status: a segfault, an `os._exit` or the
kernel's memory killer is a failed attempt of that one job.

The child leads a process group, and a kill is a kill of the group: a program that the handler runs, and what that runs, ends
with it. When the child has ended by itself its supervisor kills what is left of the group.

A slot keeps its child for the next isolated job, so that a child costs a fork now and then and not per job. It is used
for `JOBS_PER_CHILD` jobs at most, and not again after it was told to stop one or after one failed.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.errors import DeadlineExceeded, StopHandler
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.values.lease import Lease
from django_reliable_jobs.values.outcome import ErrorRecord, Outcome
from django_reliable_jobs.worker.handlers import executor
from django_reliable_jobs.worker.processes.process_group import kill_group
from django_reliable_jobs.worker.processes.supervisor_line import SupervisorLine

logger = logging.getLogger("django_reliable_jobs.worker")

JOBS_PER_CHILD = 100
#: Seconds between two looks at the memory of a child with a `memory_limit`.
MEMORY_LOOK = 0.2
#: Seconds that a child gets to put its connections in order, which asks no server anything.
TIDY_WAIT = 5.0


@dataclass(frozen=True, slots=True)
class RunJob:
    """To the child: run this. `memory_limit` in MiB."""

    lease: Lease
    memory_limit: int | None


@dataclass(frozen=True, slots=True)
class StopJob:
    """To the child: tell the handler to stop."""

    token: int
    kind: type[StopHandler]


@dataclass(frozen=True, slots=True)
class Hello:
    """From the child: it is there."""

    pid: int


@dataclass(frozen=True, slots=True)
class Progress:
    """From the child: what the handler reported (JSON text)."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """From the child: what the attempt came to."""

    outcome: Outcome
    settled: bool


@dataclass(frozen=True, slots=True)
class Tidied:
    """From the child: its connections are in order, it may have the next job."""


@dataclass(frozen=True, slots=True)
class ChildDied:
    """From the supervisor, at the child's end: its exit status, negative for a signal."""

    code: int


class IsolatedRunner:
    """A slot's runner for isolated jobs; the same interface as `Runner`."""

    def __init__(self, name: str, supervisor: SupervisorLine) -> None:
        self.name = name
        self._supervisor = supervisor
        self._channel: Connection | None = None
        self._pid: int | None = None
        self._jobs = 0
        self._used_up = False
        self._lock = threading.Lock()
        self._attempt: Attempt | None = None
        self._over_limit = False

    def run(self, attempt: Attempt, definition: JobDefinition) -> tuple[Outcome, bool]:
        """Have the child run it. Never raises."""
        try:
            channel = self._ready()
            channel.send(RunJob(attempt.lease, definition.memory_limit))
            with self._lock:
                self._attempt = attempt
                attempt.on_stop = self._stop
            if attempt.stop_kind is not None:
                self._stop(attempt, attempt.stop_kind)
            return self._follow(channel, attempt, definition)
        except BaseException as error:  # noqa: BLE001 - no child, a broken channel: the attempt fails, the slot goes on
            self._used_up = True
            return executor.outcome_of_error(attempt, definition, error), False
        finally:
            with self._lock:
                self._attempt = None
                attempt.on_stop = None

    def _ready(self) -> Connection:
        if self._channel is None or self._used_up:
            self.close()
            self._channel = self._supervisor.child()
            hello = self._channel.recv()
            if not isinstance(hello, Hello):
                raise ConnectionError(f"the child process did not start: {hello}")
            self._pid, self._jobs, self._used_up = hello.pid, 0, False
        self._jobs += 1
        self._over_limit = False
        return self._channel

    def _follow(self, channel: Connection, attempt: Attempt, definition: JobDefinition) -> tuple[Outcome, bool]:
        while True:
            if definition.memory_limit is not None and not channel.poll(MEMORY_LOOK):
                self._look_at_memory(definition.memory_limit)
                continue
            try:
                message = channel.recv()
            except (EOFError, OSError):
                message = ChildDied(-signal.SIGKILL)
            if isinstance(message, Progress):
                attempt.set_progress(message.text)
            elif isinstance(message, Ended):
                # After a failure too: the programs that it left must not run beside the next attempt.
                failed = attempt.stop_kind is not None or message.outcome.error is not None
                self._used_up = failed or self._jobs >= JOBS_PER_CHILD
                return message.outcome, message.settled
            elif isinstance(message, ChildDied):
                self._used_up = True
                return self._died(message.code, attempt, definition), False

    def _died(self, code: int, attempt: Attempt, definition: JobDefinition) -> Outcome:
        how = f"exited with status {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        if self._over_limit:
            how = f"used more than its memory_limit of {definition.memory_limit} MiB"
        if attempt.stop_kind is not None:
            kind = attempt.stop_kind
            name = f"{kind.__module__}.{kind.__qualname__}"
            error = ErrorRecord(name, f"the child process {how}, as it did not stop", "")
            return executor.stopped(attempt.lease, definition, kind, error)
        return executor.transient(attempt.lease, definition, ErrorRecord("ChildDied", f"the child process {how}", ""))

    def _look_at_memory(self, limit: int) -> None:
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
            if pages * os.sysconf("SC_PAGE_SIZE") > limit * 2**20:
                self._over_limit = True
                self._kill()

    def _stop(self, attempt: Attempt, kind: type[StopHandler]) -> None:
        """From another thread: kill at a deadline; otherwise tell the handler first."""
        with self._lock:
            if self._attempt is not attempt or self._channel is None:
                return
            if issubclass(kind, DeadlineExceeded):
                self._kill()
            else:
                with suppress(OSError):
                    self._channel.send(StopJob(attempt.lease.token, kind))

    def force_stop(self, attempt: Attempt) -> None:
        """From another thread: it was told a while ago; now it is killed."""
        with self._lock:
            if self._attempt is attempt:
                self._kill()

    @property
    def running(self) -> bool:
        return self._attempt is not None

    def _kill(self) -> None:
        # The supervisor has not waited for it before it reports its death, so the number is still this child's.
        if self._pid is not None:
            kill_group(self._pid)

    def tidy(self) -> bool:
        """The child puts its own connections in order; one that does not come to an end with that is killed."""
        if not self._used_up and self._channel is not None:
            tidied, until = False, time.monotonic() + TIDY_WAIT
            with suppress(EOFError, OSError):
                while not tidied and self._channel.poll(max(0.0, until - time.monotonic())):
                    tidied = isinstance(
                        self._channel.recv(), Tidied
                    )  # else late progress of a thread that was left behind
            if not tidied:
                self._used_up = True
                self._kill()
        if self._used_up:
            self.close()
        return True

    def close(self) -> None:
        """The child ends when its channel does."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
