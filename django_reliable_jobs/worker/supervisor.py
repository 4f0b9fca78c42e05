"""The supervisor: starts worker processes, watches, replaces and stops them.

It opens no database connection and starts no thread, so that its children inherit none when it forks. It waits for the
process ids that it knows: a bare wait for any child would steal the exit codes of others' subprocesses. A worker that
died may have left leases; the one that takes its place is told its id, and takes those leases back at once.

A worker notices the death of its supervisor by the end of a pipe, and stops in order.
"""

from __future__ import annotations

import _thread
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
from dataclasses import dataclass, field
from typing import Any, NoReturn
from uuid import UUID

from django_reliable_jobs import conf
from django_reliable_jobs.store import statements
from django_reliable_jobs.worker import child as job_child
from django_reliable_jobs.worker import exit_codes
from django_reliable_jobs.worker.connections import leave_nothing_open
from django_reliable_jobs.worker.forks import JobChildren
from django_reliable_jobs.worker.isolation import Nursery
from django_reliable_jobs.worker.maintenance import DEAD_FOR, DeadWorker
from django_reliable_jobs.worker.options import WorkerOptions
from django_reliable_jobs.worker.prefetch import most_leases
from django_reliable_jobs.worker.process import WorkerProcess
from django_reliable_jobs.worker.process_watch import ProcessWatch
from django_reliable_jobs.worker.shared_state import SharedState
from django_reliable_jobs.worker.signals import install

logger = logging.getLogger("django_reliable_jobs.supervisor")

#: A worker that died within this many seconds of its start is started again with a pause, doubled each time.
SHORT_LIFE = 5.0
PAUSE = (0.5, 15.0)
#: Seconds beyond the grace time after which a worker that does not stop is killed.
OVERDUE = 10.0
#: Seconds that the end of a process waits for its last log lines to be written.
FLUSH = 2.0


@dataclass
class Place:
    """A place for a worker process. `dead` are predecessors in it whose leases are to be taken back; `killed` is why this
    supervisor has killed its process."""

    pid: int | None = None
    worker: UUID | None = None
    nursery: socket.socket | None = None
    started: float = 0.0
    start_at: float = 0.0
    short_lives: int = 0
    over: bool = False
    dead: list[DeadWorker] = field(default_factory=list)
    shared: SharedState | None = None
    watch: ProcessWatch | None = None
    killed: str | None = None


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
        self._job_children = JobChildren(self._be_a_job_child)

    def run(self) -> int:
        """The exit status: 0 when stopped as asked."""
        leave_nothing_open()
        statements.load_all()
        self._wake_read, self._wake_write = os.pipe()
        self._life_read, self._life_write = os.pipe()
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
            for descriptor in (self._wake_read, self._wake_write, self._life_read, self._life_write):
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
                if place.pid is None and not place.over and time.monotonic() >= place.start_at:
                    self._start(place)
        if not any(place.pid for place in self.places) and (self._signals or all(p.over for p in self.places)):
            return True
        self._wait()
        return False

    def _wait(self) -> None:
        nurseries = {place.nursery: place.pid for place in self.places if place.nursery is not None and place.pid}
        now = time.monotonic()
        waits = [place.start_at - now for place in self.places if place.pid is None and not place.over]
        sources = {self._wake_read: None} | {nursery.fileno(): nursery for nursery in nurseries}
        poll = select.poll()  # `select.select` refuses a descriptor of 1,024 and more
        for descriptor in sources:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(1000 * max(0.01, min([1.0, *waits]))):
            nursery = sources[descriptor]
            if nursery is not None:
                self._job_children.serve(nurseries[nursery] or 0, nursery)
            else:
                with suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)

    def _look_at_all(self) -> None:
        """Kill what no longer runs and cannot say so."""
        for place in self.places:
            if place.pid is not None and place.watch is not None and (reason := place.watch.look(place.pid)):
                place.killed = reason
                with suppress(ProcessLookupError):
                    os.kill(place.pid, signal.SIGKILL)

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
        for place in self.places:
            if place.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(place.pid, number)

    def _start(self, place: Place) -> None:
        worker = uuid.uuid4()
        shared = SharedState(most_leases(self.options.slots))
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._be_a_worker(worker, place.dead, theirs, shared)
        theirs.close()
        ours.setblocking(False)
        place.pid, place.worker, place.nursery = pid, worker, ours
        place.started = time.monotonic()
        place.shared, place.watch, place.killed = shared, ProcessWatch(shared, conf.current().lease), None

    def _reap(self) -> None:
        self._job_children.reap()
        if os.getpid() == 1:
            reap_orphans({place.pid for place in self.places} | self._job_children.pids)
        for place in self.places:
            if place.pid is not None:
                pid, status = os.waitpid(place.pid, os.WNOHANG)
                if pid:
                    self._ended(place, os.waitstatus_to_exitcode(status))

    def _ended(self, place: Place, code: int) -> None:
        self._job_children.kill(place.pid)
        if place.nursery is not None:
            place.nursery.close()
        now = time.monotonic()
        said = code - exit_codes.ORDERLY
        died = said not in (exit_codes.OK, exit_codes.FAILURES, exit_codes.RECYCLE)
        if died and not self._signals:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with status {said if said >= 0 else code}"
            if said == exit_codes.STUCK:
                how = "has ended itself: a part of it stood still (where, is in its standard error)"
            elif place.killed is not None:
                how = f"was killed by its supervisor: {place.killed}"
            logger.error("worker process %s (%s) %s; another takes its place", place.pid, place.worker, how)
        if now - place.started > DEAD_FOR:
            place.dead = []  # the one that ended has taken their leases back; one that died sooner may not have
        if died and place.worker is not None:
            begun = place.shared.begun() if place.shared is not None else None
            place.dead.append(DeadWorker(place.worker, None if begun is None else tuple(begun)))
            if self._limited:
                self._code = exit_codes.FAILURES
        if self._limited and said in (exit_codes.OK, exit_codes.FAILURES):
            place.over = True
            self._code = max(self._code, said)
        place.short_lives = place.short_lives + 1 if died and now - place.started < SHORT_LIFE else 0
        pause = 0.0 if place.short_lives <= 1 else min(PAUSE[1], PAUSE[0] * 2 ** min(place.short_lives - 2, 10))
        place.pid, place.worker, place.nursery, place.start_at = None, None, None, now + pause

    # -- what the forked processes do

    def _leave_supervision(self) -> None:
        """In a forked child: nothing of the supervisor's is left open or handled."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._wake_read, self._wake_write, self._life_write):
            os.close(descriptor)
        for place in self.places:
            if place.nursery is not None:
                place.nursery.close()

    def _be_a_worker(
        self, worker: UUID, dead: list[DeadWorker], supervisor: socket.socket, shared: SharedState
    ) -> NoReturn:
        code = exit_codes.BROKEN
        try:
            self._leave_supervision()
            process = WorkerProcess(self.options, worker, tuple(dead), Nursery(supervisor), shared)
            process.handle_signals(supervised=True)
            threading.Thread(target=_follow, args=(self._life_read, process), name="life-line", daemon=True).start()
            code = exit_codes.ORDERLY + process.run()
        except BaseException:
            logger.exception("the worker failed")
        finally:
            _exit(code)

    def _be_a_job_child(self, worker_pid: int, channel: int) -> NoReturn:
        try:
            worker = next(place.worker for place in self.places if place.pid == worker_pid)
            self._leave_supervision()
            os.close(self._life_read)
            job_child.live(channel, self.options.alias, worker or uuid.uuid4())
        except BaseException:
            logger.exception("the child process of an isolated job failed")
        finally:
            _exit(exit_codes.BROKEN)


def _exit(code: int) -> NoReturn:
    """End at once: threads that hang, and what the parent registered with `atexit`, have no say.

    Nor has a log handler whose lock a stopped handler has left taken: flushing is given up after a while.
    """
    flushed = _thread.allocate_lock()
    flushed.acquire()
    with suppress(Exception):
        _thread.start_new_thread(_flush, (flushed,))
        flushed.acquire(timeout=FLUSH)
    os._exit(code)


def _flush(flushed: _thread.LockType) -> None:
    try:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        flushed.release()


def _follow(life_read: int, process: WorkerProcess) -> None:
    """Stop in order when the supervisor is gone: its end of the pipe closes with it."""
    os.read(life_read, 1)
    logger.warning("the supervisor is gone, this worker stops")
    process.request_stop()


def reap_orphans(known: set[int | None]) -> None:
    """As process 1 we inherit the zombies of others. Look before waiting: no known child's status is taken."""
    for _ in range(100):
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid in known:
            return
        os.waitpid(found.si_pid, 0)


def run(options: WorkerOptions) -> int:
    """Run workers until told to stop. Where there is no `fork`, or outside the main thread, one in this process."""
    if hasattr(os, "fork") and threading.current_thread() is threading.main_thread():
        return Supervisor(options).run()
    process = WorkerProcess(options, uuid.uuid4())
    process.handle_signals()
    return process.run()
