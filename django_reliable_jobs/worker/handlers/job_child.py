"""The rest of an isolated child's life: it runs the jobs that come down its channel, one at a time.

The main thread runs handlers; another one listens to the channel, so that a handler can be told to stop while it runs,
and so that the child ends when its worker does.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import NoReturn
from uuid import UUID

from django_reliable_jobs.definitions import registry
from django_reliable_jobs.errors import UnknownJob
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.values.lease import Lease
from django_reliable_jobs.values.outcome import ErrorRecord
from django_reliable_jobs.worker.handlers import executor
from django_reliable_jobs.worker.handlers.isolated_runner import Ended, Hello, Progress, RunJob, StopJob, Tidied
from django_reliable_jobs.worker.handlers.runner import Runner
from django_reliable_jobs.worker.processes.process_group import kill_group, lead_a_group
from django_reliable_jobs.worker.signals import install

logger = logging.getLogger("django_reliable_jobs.worker")


class ChildAttempt(Attempt):
    """Sends progress to the worker at once; there it waits for the next heartbeat."""

    __slots__ = ("channel",)

    def __init__(self, lease: Lease, channel: Channel) -> None:
        super().__init__(lease)
        self.channel = channel

    def set_progress(self, progress: str) -> None:
        self.progress = progress  # an atomic job stores its last one with its settle
        self.channel.send(Progress(progress))


class Channel:
    """The child's end. Several threads send."""

    def __init__(self, descriptor: int) -> None:
        self._connection = Connection(descriptor)
        self._lock = threading.Lock()
        self.jobs: SimpleQueue[tuple[RunJob, ChildAttempt]] = SimpleQueue()
        self._running: ChildAttempt | None = None

    def send(self, message: object) -> None:
        try:
            with self._lock:
                self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            nobody_left()

    def listen(self) -> None:
        """Until the worker closes its end, or dies; then this process has nobody to work for."""
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                nobody_left()
            if isinstance(message, RunJob):
                self._running = ChildAttempt(message.lease, self)
                self.jobs.put((message, self._running))
            elif isinstance(message, StopJob):
                running = self._running
                if running is not None and running.lease.token == message.token:
                    running.stop(message.kind)


def nobody_left() -> NoReturn:
    """The worker has closed its end, or is dead: this process ends, and the programs that its handler has started."""
    kill_group(os.getpid())
    os._exit(0)


def live(descriptor: int, alias: str, worker: UUID) -> None:
    """Run jobs until the channel ends. Never returns."""
    lead_a_group()
    # The worker decides when a handler has to stop; a Ctrl-C in the terminal goes to the worker alone.
    install((signal.SIGINT, signal.SIGTERM), lambda: None)
    channel = Channel(descriptor)
    runner = Runner("isolated", alias, worker)
    threading.Thread(target=channel.listen, name="channel", daemon=True).start()
    channel.send(Hello(os.getpid()))
    while True:
        job, attempt = channel.jobs.get()
        _limit_memory(job.memory_limit)
        attempt.start()
        try:
            definition = registry.find(job.lease.name)
        except UnknownJob as error:
            raise SystemExit(f"the child process does not know the job: {error}") from None
        outcome, settled = runner.run(attempt, definition)
        _limit_memory(None)
        try:
            channel.send(Ended(outcome, settled))
        except MemoryError:
            kept = ErrorRecord("MemoryError", "there was no memory left to report the outcome", "")
            channel.send(Ended(executor.transient(attempt.lease, definition, kept), False))
        runner.tidy()
        channel.send(Tidied())
        with suppress(OSError, ValueError):
            sys.stdout.flush()


def _limit_memory(limit: int | None) -> None:
    """Let allocations fail a little above the limit; what still gets past it, the worker sees and kills."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = hard if limit is None else limit * 2**20
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
