"""Runs: a function under a lease that is renewed while it runs and ends with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from asgiref.sync import sync_to_async

from django_reliable_jobs import conf
from django_reliable_jobs.definitions.job import is_coroutine_function
from django_reliable_jobs.errors import LeaseLost, StopHandler
from django_reliable_jobs.guards.guard import Guard
from django_reliable_jobs.guards.lease import GuardedRun, GuardLease, Terms, current
from django_reliable_jobs.guards.periods import Period, as_period
from django_reliable_jobs.guards.renewal import Renewal
from django_reliable_jobs.running.context import current_job
from django_reliable_jobs.running.interrupt import Target
from django_reliable_jobs.running.returned import awaited_here, has_to_be_awaited, refuse_unrun, to_the_end
from django_reliable_jobs.values.durations import Duration, seconds

T = TypeVar("T")
Function = Callable[..., Awaitable[T]] | Callable[..., T]


@dataclass(frozen=True, slots=True)
class GuardResult(Generic[T]):
    """Falsy when the function was not run; `value` is what it returned."""

    ran: bool
    value: T | None = None

    def __bool__(self) -> bool:
        return self.ran


def run_exclusive(
    key: str, ttl: Duration, fn: Callable[..., T], *args: Any, using: str | None = None, **kwargs: Any
) -> GuardResult[T]:
    """Run `fn(*args, **kwargs)` unless somebody else is running under this key.

    The key is held by a lease of `ttl` seconds (at least 1), renewed every third of that by a thread of its own: if this
    process dies, the key is free after `ttl`. When the lease is lost (a long stall, the store out of reach for `ttl`),
    `current_lease().lost` is set and `LeaseLost` is raised in `fn`, as soon as it runs Python code, and by this call. A
    stalled owner does not know that yet: have its writes fenced with `current_lease().token`.

    What `fn` returns is awaited if it can be (a coroutine function behind a plain decorator), under the lease; a generator,
    which nobody would run, raises NotRun and frees the key.

    Raises GuardUnavailable if the store does not answer within `GUARDS["TIMEOUT"]`, RuntimeError inside `atomic()` (the
    key would be free before `fn`'s writes are committed), and whatever `fn` raises.
    """
    return _run(_exclusive("run_exclusive", key, ttl, using), fn, args, kwargs)


def run_once(
    key: str, period: Period | None, fn: Callable[..., T], *args: Any, using: str | None = None, **kwargs: Any
) -> GuardResult[T]:
    """Run `fn(*args, **kwargs)` unless it has succeeded under this key in the present period, or is just running.

    After a success the key stays until the period ends (None: for good). An exception frees it for another try; so does
    a crash, after `LEASE` seconds. Periods are as in `claim_period`. Everything else is as in `run_exclusive`. If the
    success cannot be recorded while the lease lasts, GuardUnavailable says so: `fn` may then run again.
    """
    return _run(_once("run_once", key, period, using), fn, args, kwargs)


async def arun_exclusive(
    key: str, ttl: Duration, fn: Function[T], *args: Any, using: str | None = None, **kwargs: Any
) -> GuardResult[T]:
    """`run_exclusive` for coroutines: when the lease is lost, `fn` is cancelled at its next await.

    A plain function runs in a thread, as by `sync_to_async`.
    """
    return await _arun(_exclusive("arun_exclusive", key, ttl, using), fn, args, kwargs)


async def arun_once(
    key: str, period: Period | None, fn: Function[T], *args: Any, using: str | None = None, **kwargs: Any
) -> GuardResult[T]:
    """`run_once` for coroutines; see `arun_exclusive`."""
    return await _arun(_once("arun_once", key, period, using), fn, args, kwargs)


def _exclusive(verb: str, key: str, ttl: Duration, using: str | None) -> Terms:
    return Terms(Guard.of("exclusive", key, using), verb, seconds(ttl, "ttl", minimum=1))


def _once(verb: str, key: str, period: Period | None, using: str | None) -> Terms:
    timetable = None if period is None else as_period(period)
    return Terms(Guard.of("run", key, using), verb, conf.current().lease, once=True, period=timetable)


def _run(terms: Terms, fn: Callable[..., T], args: Any, kwargs: Any) -> GuardResult[T]:
    guarded_run = GuardedRun.begin(terms)
    if guarded_run is None:
        return GuardResult(False)
    run = _Run(guarded_run.lease)
    lease = guarded_run.lease
    renewal = _renewal_of(guarded_run, run.stop)
    try:
        value = run.call(fn, args, kwargs)
    except BaseException as error:
        renewal.stop()
        guarded_run.give_back()
        if lease.lost.is_set() and isinstance(error, LeaseLost):
            raise lease.loss() from error
        raise
    renewal.stop()
    if lease.lost.is_set() or not guarded_run.finish():
        raise lease.loss()
    return GuardResult(True, value)


class _Run:
    """A function under a lease, and whoever stops it: raising in its thread, or cancelling what it gave back to await."""

    def __init__(self, lease: GuardLease) -> None:
        self.lease = lease
        self._target = Target()
        self._lock = threading.Lock()
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def call(self, fn: Callable[..., T], args: Any, kwargs: Any) -> T:
        value = _call(self._target, self.lease, fn, args, kwargs)
        if has_to_be_awaited(value):
            variable = current.set(self.lease)
            try:
                value = awaited_here(value, self._until_lost)
            except asyncio.CancelledError as error:
                if self.lease.lost.is_set():
                    raise self.lease.loss() from error
                raise
            finally:
                current.reset(variable)
        refuse_unrun(value)
        return value

    async def _until_lost(self, value: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        with self._lock:
            self._task = asyncio.get_running_loop(), task
        try:
            self.lease.check()
            return await to_the_end(value)
        finally:
            with self._lock:
                self._task = None

    def stop(self) -> None:
        """From the renewal's thread: the lease is lost."""
        with self._lock:
            if self._task is not None:
                _cancel(*self._task)
                return
        _interrupt(self._target, self.lease)


def _call(target: Target, lease: GuardLease, fn: Callable[..., T], args: Any, kwargs: Any) -> T:
    """In the caller's thread, where LeaseLost can be raised from outside while `fn` runs, and not after that."""
    outer = current.get()
    hit: StopHandler | None = None
    try:
        current.set(lease)
        target.arm(lease)
        return fn(*args, **kwargs)
    finally:
        try:
            try:
                target.disarm()
            except StopHandler as signal:
                hit = signal
                try:
                    target.disarm()
                except StopHandler as another:  # the job's, say, where the first one was ours
                    hit = another
                    target.disarm()
        finally:
            current.set(outer)
        if hit is not None or lease.told:
            _check_around(outer, hit, lease)


def _check_around(outer: GuardLease | None, hit: StopHandler | None, lease: GuardLease) -> None:
    """A thread has room for one pending exception: ours may have taken the place of one that was meant for the code
    around this, and one that hit us on the way out may have been meant for it."""
    if outer is not None:
        outer.check()
    if (job := current_job()) is not None:
        job.check()
    if hit is not None and not lease.lost.is_set():
        raise hit


def _interrupt(target: Target, lease: GuardLease) -> None:
    with target.held(lease) as running:
        if running:
            target.interrupt(lease, LeaseLost)


async def _arun(terms: Terms, fn: Function[T], args: Any, kwargs: Any) -> GuardResult[T]:
    if not is_coroutine_function(fn):
        return await sync_to_async(_run)(terms, cast(Callable[..., T], fn), args, kwargs)
    guarded_run = await sync_to_async(GuardedRun.begin)(terms)
    if guarded_run is None:
        return GuardResult(False)
    lease, loop, me = guarded_run.lease, asyncio.get_running_loop(), asyncio.current_task()
    variable = current.set(lease)
    try:
        # A task of its own: what cancels it cannot hit the caller's code.
        task = loop.create_task(to_the_end(fn(*args, **kwargs)))
    finally:
        current.reset(variable)
    renewal = _renewal_of(guarded_run, lambda: _cancel(loop, task))
    try:
        value: T = await task
        refuse_unrun(value)
    except BaseException as error:
        renewal.stop()
        await sync_to_async(guarded_run.give_back)()
        cancelled_by_us = isinstance(error, asyncio.CancelledError) and (me is None or not me.cancelling())
        if lease.lost.is_set() and (cancelled_by_us or isinstance(error, LeaseLost)):
            raise lease.loss() from error
        raise
    renewal.stop()
    if lease.lost.is_set() or not await sync_to_async(guarded_run.finish)():
        raise lease.loss()
    return GuardResult(True, value)


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    try:
        loop.call_soon_threadsafe(task.cancel)
    except RuntimeError:
        pass  # the loop is closed, and the task with it


class _NoRenewal:
    def stop(self) -> None:
        pass


def _renewal_of(guarded_run: GuardedRun, on_loss: Callable[[], None]) -> Renewal | _NoRenewal:
    """There is nothing to keep in a `TestCase`; see `GuardedRun.begin`."""
    return _NoRenewal() if guarded_run.terms.guard.joins else Renewal(guarded_run, on_loss)
