"""Runs one attempt after the other in the thread that it belongs to: a slot's, or a child process' main thread.

It gives the handler its context, has plain, coroutine and atomic handlers run each in its way, lets other threads stop
the one that runs, and puts the thread's connections in order afterwards.
"""

from __future__ import annotations

import _thread
import logging
import sys
import threading
import traceback
from typing import Any
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.errors import StopHandler
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.running.context import JobContext, invocation
from django_reliable_jobs.running.interrupt import Target
from django_reliable_jobs.running.returned import has_to_be_awaited, to_the_end
from django_reliable_jobs.values.outcome import Outcome
from django_reliable_jobs.worker.handlers import atomic, executor, infrastructure
from django_reliable_jobs.worker.handlers.coroutines import CoroutineRunner
from django_reliable_jobs.worker.handlers.handler_connections import (
    Traces,
    cancel_queries,
    close_all,
    drop_the_dead,
    tidy,
)

logger = logging.getLogger("django_reliable_jobs.worker")

#: Stack frames that are kept of a handler that does not stop.
FRAMES = 30


class Runner:
    """Made in the thread that it runs attempts in. `alias` and `worker` are for atomic jobs and checkpoints."""

    def __init__(self, name: str, alias: str, worker: UUID) -> None:
        self.name = name
        self.alias = alias
        self.worker = worker
        self.thread_id = threading.get_ident()
        self._target = Target()
        self._traces = Traces(alias)
        self._wrappers: list[BaseDatabaseWrapper] = self._traces.watch()
        self._coroutines: CoroutineRunner | None = None
        self._tainted = False

    def run(self, attempt: Attempt, definition: JobDefinition) -> tuple[Outcome, bool]:
        """The outcome, and whether it is in the database already (an atomic job's). Never raises."""
        outcome: Outcome | None = None
        settled = False
        drop_the_dead(self._all_wrappers())
        try:
            attempt.on_stop = self._on_stop
            self._target.arm(attempt)
            outcome, settled = self._handle(attempt, definition)
            self._target.disarm()
        except BaseException as error:  # noqa: BLE001 - the one exception from outside hit between two statements
            self._target.disarm()
            if outcome is None:
                outcome = executor.outcome_of_error(attempt, definition, error)
        attempt.on_stop = None
        return outcome, settled

    def _handle(self, attempt: Attempt, definition: JobDefinition) -> tuple[Outcome, bool]:
        context = JobContext(attempt, self.alias)
        if definition.atomic:
            return atomic.execute(attempt, definition, self.alias, self.worker, context, self._judge)

        def call(args: list[Any], kwargs: dict[str, Any]) -> Any:
            variables, handler = invocation(definition, context, args, kwargs)
            if definition.is_coroutine:
                return self._loop().run(handler(), variables)
            value = variables.run(handler)
            if has_to_be_awaited(value):
                return self._loop().run(to_the_end(value), variables)
            return value

        return executor.execute(attempt, definition, call, self._judge), False

    def _judge(self, error: BaseException) -> str:
        traces = [self._traces, *([self._coroutines.traces] if self._coroutines is not None else [])]
        return infrastructure.reason(
            error, self.alias, wants_read_only=any(self.alias in one.read_only for one in traces)
        )

    def _loop(self) -> CoroutineRunner:
        if self._coroutines is None:
            self._coroutines = CoroutineRunner(self.name, self.alias)
        return self._coroutines

    def _on_stop(self, attempt: Attempt, kind: type[StopHandler]) -> None:
        """From another thread. In one of its own: cancelling a query may take seconds, and the caller has no time.

        Not with `threading.Thread`, whose lock for all threads a stopped handler may have left taken: the heartbeat comes here.
        """
        _thread.start_new_thread(self._stop, (attempt, kind))

    def _stop(self, attempt: Attempt, kind: type[StopHandler]) -> None:
        with self._target.held(attempt) as running:
            if not running:
                return
            at_await = self._coroutines is not None and self._coroutines.cancel()
            if not at_await:
                self._target.interrupt(attempt, kind)
            wrappers = self._all_wrappers()
            if any(wrapper.connection is not None for wrapper in wrappers):
                # A cancellation can arrive late: whatever these connections run next must not be another job's.
                self._tainted = True
                cancel_queries(wrappers)

    def _all_wrappers(self) -> list[BaseDatabaseWrapper]:
        return self._wrappers + (self._coroutines.wrappers if self._coroutines is not None else [])

    def force_stop(self, attempt: Attempt) -> None:
        """From another thread: the coroutine was cancelled at its await and did not end; raise in its thread."""
        with self._target.held(attempt) as running:
            if running and attempt.stop_kind is not None:
                self._target.interrupt(attempt, attempt.stop_kind)

    def where(self) -> str:
        """Where the thread is just now, for the error of a handler that does not stop."""
        frame = sys._current_frames().get(self.thread_id)
        return "" if frame is None else "".join(traceback.format_stack(frame)[-FRAMES:])

    def tidy(self) -> bool:
        """Put the connections in order for the next attempt. False: a thread of the last one is still running."""
        tainted, self._tainted = self._tainted, False
        tidy(self._wrappers, self._traces, tainted=tainted)
        if self._coroutines is None or self._coroutines.tidy(tainted=tainted):
            return True
        self._coroutines.close()
        self._coroutines = None
        return False

    def close(self) -> None:
        close_all(self._wrappers)
        if self._coroutines is not None:
            self._coroutines.close()
