"""The supervisor: starts worker processes, watches, replaces and stops them.

It opens no database connection and starts no thread, so that its children inherit none when it forks. It waits for the
process ids that it knows: a bare wait for any child would steal the exit codes of others' subprocesses. A worker that
died may have left leases; the one that takes its place is told its id, and takes those leases back at once.

A worker that wants to be replaced (`--max-jobs-per-process`, `--max-rss`, threads written off) asks here first: its
successor is started before it is told to take nothing more, and it ends when what it runs has ended, whenever that is.
So at most two processes share a place; the later one goes on working for as long as the earlier one lives.

A worker notices the death of its supervisor by the end of its line to it (`supervisor_line`), and stops in order.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn
from uuid import UUID

from django_reliable_jobs import conf, store
from django_reliable_jobs.worker import exit_codes
from django_reliable_jobs.worker.handlers import job_child
from django_reliable_jobs.worker.handlers.handler_connections import leave_nothing_open
from django_reliable_jobs.worker.leases.prefetch import most_leases
from django_reliable_jobs.worker.maintenance.maintenance import DeadWorker
from django_reliable_jobs.worker.options import WorkerOptions
from django_reliable_jobs.worker.processes.before_and_after_fork import tell_the_project, warn_of_threads
from django_reliable_jobs.worker.processes.flushing import flush
from django_reliable_jobs.worker.processes.job_children import JobChildren
from django_reliable_jobs.worker.processes.places import Place, Running, ended_how, everybody, reap_orphans
from django_reliable_jobs.worker.processes.process import WorkerProcess
from django_reliable_jobs.worker.processes.process_watch import ProcessWatch
from django_reliable_jobs.worker.processes.supervisor_line import (
    DRAIN,
    GO_ON,
    RECYCLE,
    SupervisorLine,
    WorkerLine,
    dead_line,
    ran_of,
)
from django_reliable_jobs.worker.shared_state import SharedState
from django_reliable_jobs.worker.signals import install

logger = logging.getLogger("django_reliable_jobs.supervisor")

#: Seconds beyond the grace time within which everything has ended, and those after which a worker is killed for that.
HAND_BACK = 10
OVERDUE = 9.5
#: Seconds until it is tried again to start a process when that failed: no memory, no processes, no descriptors left.
START_PAUSE = 2.0
#: Seconds between two log lines about that.
SAY_EVERY = 60.0


class Supervisor:
    """Runs `options.processes` workers until it is told to stop, or until a worker with a limited task has done it."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.places = [Place() for _ in range(options.processes)]
        self._limited = options.burst or options.max_jobs is not None
        self._code = exit_codes.OK
        self._signals = 0
        self._signals_sent = 0
        self._stop_by: float | None = None
        self._say_again_at = 0.0
        self._job_children = JobChildren(self._be_a_job_child)

    def run(self) -> int:
        """The exit status: 0 when stopped as asked."""
        warn_of_threads()
        leave_nothing_open()
        store.load_statements()
        self._wake_read, self._wake_write = os.pipe()
        for descriptor in (self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)
        before: dict[int, Any] = install((signal.SIGTERM, signal.SIGINT), self._on_signal)
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        # The heap so far is shared with all children; the collector must not touch, and so copy, its pages.
        gc.collect()
        gc.freeze()
        try:
            while not self._round():
                pass
            return self._code
        finally:
            self._job_children.kill()
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            for descriptor in (self._wake_read, self._wake_write):
                os.close(descriptor)
            gc.unfreeze()

    def _round(self) -> bool:
        """One look at everything; True when the work is over."""
        self._reap()
        self._look_at_all()
        if self._signals:
            self._stop_workers()
        else:
            for place in self.places:
                if place.current is None and not place.over and time.monotonic() >= place.start_at:
                    self._start(place)
        if not any(everybody(self.places)) and (self._signals or all(place.over for place in self.places)):
            return True
        self._wait()
        return False

    def _wait(self) -> None:
        now = time.monotonic()
        waits = [place.start_at - now for place in self.places if place.current is None and not place.over]
        poll = select.poll()  # no `select`, which ends at descriptor 1,023
        poll.register(self._wake_read, select.POLLIN)
        lines = {}
        for place in self.places:
            for one in place.running:
                if not one.line.over:
                    lines[one.line.fileno()] = (place, one)
                    poll.register(one.line, select.POLLIN)
        for descriptor, _ in poll.poll(1000 * max(0.01, min([1.0, *waits]))):
            if descriptor in lines:
                self._hear(*lines[descriptor])
            else:
                with suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)

    def _look_at_all(self) -> None:
        """Kill what no longer runs and cannot say so."""
        for one in everybody(self.places):
            if reason := one.watch.look(one.pid):
                one.killed = reason
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)

    def _hear(self, place: Place, one: Running) -> None:
        """What a worker says."""
        said, channels = one.line.hear()
        self._job_children.serve(one.pid, channels)
        for line in said:
            if line == RECYCLE:
                one.line.say(DRAIN if self._succeeded(place, one) else GO_ON)
            else:
                place.ran += ran_of(line)

    def _succeeded(self, place: Place, one: Running) -> bool:
        """Start a successor of the worker beside it, unless it has one or has a predecessor itself."""
        if one is place.predecessor:
            return True
        if place.predecessor is not None or self._signals:
            return False
        place.predecessor, place.current = one, None
        if not self._start(place):
            place.predecessor, place.current = None, one
            return False
        return True

    def _on_signal(self) -> None:
        self._signals += 1

    def _stop_workers(self) -> None:
        now = time.monotonic()
        if not self._signals_sent:
            self._tell(signal.SIGTERM)
        if self._signals_sent < 2 <= self._signals:
            self._tell(signal.SIGQUIT)
        self._signals_sent = self._signals
        if self._stop_by is None:
            self._stop_by = now + self.options.grace + OVERDUE
        elif now > self._stop_by:
            logger.error("workers do not stop, they are killed")
            self._tell(signal.SIGKILL)
            self._stop_by = now + OVERDUE

    def _tell(self, number: int) -> None:
        for one in everybody(self.places):
            with suppress(ProcessLookupError):
                os.kill(one.pid, number)

    def _start(self, place: Place) -> bool:
        """Whether there is a process in the place now."""
        options = self.options
        if options.max_jobs is not None:
            if place.ran >= options.max_jobs:
                place.over = True
                return False
            options = replace(options, max_jobs=options.max_jobs - place.ran)
        worker = uuid.uuid4()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            shared = SharedState(most_leases(options.slots))
            ours, theirs = socket.socketpair()
            try:
                pid = os.fork()
            except BaseException:
                ours.close()
                theirs.close()
                raise
        except OSError as error:
            place.start_at = time.monotonic() + START_PAUSE
            if time.monotonic() >= self._say_again_at:
                self._say_again_at = time.monotonic() + SAY_EVERY
                logger.error("cannot start a worker process, it is tried again: %s", error)
            return False
        if pid == 0:
            ours.close()
            self._be_a_worker(options, worker, place.dead_workers, theirs, shared)
        theirs.close()
        watch = ProcessWatch(shared, conf.current().lease)
        place.current = Running(pid, worker, WorkerLine(ours), time.monotonic(), shared, watch)
        return True

    def _reap(self) -> None:
        self._job_children.reap()
        if os.getpid() == 1:
            reap_orphans({one.pid for one in everybody(self.places)} | self._job_children.pids)
        for place in self.places:
            for one in place.running:
                code = ended_how(one.pid)
                if code is not None:
                    self._ended(place, one, code)

    def _ended(self, place: Place, one: Running, code: int) -> None:
        self._job_children.kill(one.pid)
        said_last, channels = one.line.hear()
        place.ran += sum(ran_of(line) for line in said_last)
        for channel in channels:
            os.close(channel)
        one.line.close()
        said = code - exit_codes.ORDERLY
        died = said not in exit_codes.AS_MEANT
        if died and not self._signals:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with status {said if said >= 0 else code}"
            if said == exit_codes.STUCK:
                how = "has ended itself: a part of it stood still (where, is in its standard error)"
            elif one.killed is not None:
                how = f"was killed by its supervisor: {one.killed}"
            logger.error("worker process %s (%s) %s; another takes its place", one.pid, one.worker, how)
        was_current = one is place.current
        lost = place.ended(one, died=died)
        if lost is not None and place.current is not None:
            place.current.line.say(dead_line(lost.worker, lost.begun))
        if self._limited:
            if died or said in exit_codes.WITH_FAILURES:
                self._code = exit_codes.FAILURES
            if said == exit_codes.NOT_READY:
                self._code = exit_codes.BROKEN
            if died or said in exit_codes.WANT_ANOTHER:
                place.over = False  # also when it was a predecessor, and its successor is done
            elif was_current:
                place.over = True

    # -- what the forked processes do

    def _leave_supervision(self) -> None:
        """In a forked child: nothing of the supervisor's is left open or handled."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._wake_read, self._wake_write):
            os.close(descriptor)
        for one in everybody(self.places):
            one.line.close()

    def _be_a_worker(
        self, options: WorkerOptions, worker: UUID, dead: list[DeadWorker], supervisor: socket.socket,
        shared: SharedState,
    ) -> NoReturn:  # fmt: skip
        code, flushed = exit_codes.BROKEN, False
        try:
            self._leave_supervision()
            line = SupervisorLine(supervisor)
            process = WorkerProcess(options, worker, tuple(dead), line, shared)
            process.handle_signals(supervised=True)
            threading.Thread(target=_listen, args=(line, process), name="supervisor-line", daemon=True).start()
            tell_the_project(isolated=False)
            code = exit_codes.ORDERLY + process.run()
            flushed = process.flushed
        except BaseException:
            logger.exception("the worker failed")
        finally:
            _exit(code, flushed=flushed)

    def _be_a_job_child(self, worker_pid: int, channel: int) -> NoReturn:
        try:
            worker = next((one.worker for one in everybody(self.places) if one.pid == worker_pid), None)
            self._leave_supervision()
            tell_the_project(isolated=True)
            job_child.live(channel, self.options.alias, worker or uuid.uuid4())
        except BaseException:
            logger.exception("the child process of an isolated job failed")
        finally:
            _exit(exit_codes.BROKEN)


def _exit(code: int, *, flushed: bool = False) -> NoReturn:
    """End at once: threads that hang, and what the parent registered with `atexit`, have no say."""
    if not flushed:
        flush()
    os._exit(code)


def _listen(line: SupervisorLine, process: WorkerProcess) -> None:
    """Do what the supervisor says; stop in order when it is gone."""
    for said in line.lines():
        process.hear(said)
    logger.warning("the supervisor is gone, this worker stops")
    process.request_stop()


def run(options: WorkerOptions) -> int:
    """Run workers until told to stop. Where there is no `fork`, or outside the main thread, one in this process."""
    logger.info(
        "a stop takes up to %g s (the grace time and %d s to hand back): whoever sends SIGKILL has to wait for that long",
        options.grace + HAND_BACK, HAND_BACK,
    )  # fmt: skip
    if hasattr(os, "fork") and threading.current_thread() is threading.main_thread():
        return Supervisor(options).run()
    process = WorkerProcess(options, uuid.uuid4())
    process.handle_signals()
    return process.run()
