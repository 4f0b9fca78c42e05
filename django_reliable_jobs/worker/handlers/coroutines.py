"""Runs coroutine handlers: an event loop for each slot, and a thread for each slot's `sync_to_async`.

One loop for all slots would be lighter, but one handler that blocks it would stop all the others; so a blocked loop
costs its own slot and nothing else. asgiref sends thread-sensitive calls (the ORM) to the executor that belongs to
the current `ThreadSensitiveContext`; each attempt gets a context of its own whose executor is the slot's, so that its
connections are kept from attempt to attempt, as a plain handler's are.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.running.returned import has_to_be_awaited, to_the_end
from django_reliable_jobs.worker.handlers.handler_connections import Traces, close_all, tidy

logger = logging.getLogger("django_reliable_jobs.worker")

#: Seconds that tasks which a handler left behind get to end, once cancelled.
LEFTOVER_GRACE = 1.0


class _SyncThread(ThreadPoolExecutor):
    """One thread, started by its first call; remembers whether it was used since the last clean-up."""

    used = False
    _last: Future[Any] | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.used = True
        self._last = super().submit(fn, *args, **kwargs)
        return self._last

    @property
    def busy(self) -> bool:
        return self._last is not None and not self._last.done()


class _Selector(selectors.DefaultSelector):
    """Ends the loop when `main` is done, and does not ask the system in vain.

    The loop looks here each time round, so no callback is needed that an exception from outside could hit. That takes two
    thirds of the time of `run_until_complete`, whose callback needs another round.

    The system is not asked when the loop would not wait and has no file but its own, with which others wake it up: who wakes
    it has put what is to run into its queue before. A system call gives the GIL away, with eight slots at work for a while,
    and a handler that never waits made two of them.
    """

    main: asyncio.Task[Any] | None = None
    stop: Callable[[], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.main is not None and self.main.done():
            self.stop()
            return []
        if timeout is not None and timeout <= 0 and len(self.get_map()) <= 1:
            return []
        return super().select(timeout)


class CoroutineRunner:
    """The loop and the executor of one slot; made when its first coroutine handler comes."""

    def __init__(self, name: str, alias: str = "") -> None:
        self._selector = _Selector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self._selector.stop = self.loop.stop
        self.loop.set_task_factory(self._make_task)
        self.traces = Traces(alias)
        self.wrappers: list[BaseDatabaseWrapper] = []
        self.executor = _SyncThread(1, thread_name_prefix=f"{name}-sync", initializer=self._watch)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._main: asyncio.Task[Any] | None = None
        self._has_leftovers = False

    def _watch(self) -> None:
        self.wrappers = self.traces.watch()

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **kwargs)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def run(self, coroutine: Coroutine[Any, Any, Any], variables: contextvars.Context) -> Any:
        """Run it to its end in this thread, in the context `variables`; tasks that it leaves behind are cancelled."""
        sensitive = ThreadSensitiveContext()
        SyncToAsync.context_to_thread_executor[sensitive] = self.executor
        variables.run(SyncToAsync.thread_sensitive_context.set, sensitive)
        self._main = self._selector.main = main = asyncio.Task(coroutine, loop=self.loop, context=variables)
        try:
            while True:
                self.loop.run_forever()
                if not main.done():
                    raise RuntimeError("the handler has stopped the event loop that it runs in")
                value = main.result()
                if not has_to_be_awaited(value):
                    return value
                # A decorator's coroutine gave back that of the handler. Tasks that it has started are still there.
                main = asyncio.Task(to_the_end(value), loop=self.loop, context=variables)
                self._main = self._selector.main = main
        finally:
            self._main = self._selector.main = None
            if self._tasks or not main.done():
                self._cancel_leftovers(main)

    def cancel(self) -> bool:
        """From another thread: cancel the handler at its next await. False when none runs."""
        main = self._main
        if main is None:
            return False
        self.loop.call_soon_threadsafe(main.cancel)
        return True

    def _cancel_leftovers(self, main: asyncio.Task[Any]) -> None:
        tasks = [task for task in (main, *self._tasks) if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            _, pending = self.loop.run_until_complete(asyncio.wait(tasks, timeout=LEFTOVER_GRACE))
            if pending:
                logger.warning("a coroutine handler left %d tasks behind that ignore their cancellation", len(pending))
                self._has_leftovers = True

    def tidy(self, *, tainted: bool) -> bool:
        """Put the connections of the slot's `sync_to_async` thread in order, in that thread, if it was used.

        False: something of a handler is still in the loop or in that thread. Neither may be used for another one.
        """
        if self._has_leftovers or self.executor.busy:
            return False
        if self.executor.used:
            self.executor.submit(tidy, self.wrappers, self.traces, tainted=tainted).result()
            self.executor.used = False
        return True

    def close(self) -> None:
        """The connections are closed once the thread is free. A loop with tasks in it is left as it is, unrun."""
        if self.executor.used or self.wrappers:
            self.executor.submit(close_all, self.wrappers)
        self.executor.shutdown(wait=False)
        if not self._has_leftovers:
            self.loop.close()
