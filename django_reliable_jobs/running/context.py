"""What a handler sees of its job: `ctx`, or `current_job()` anywhere below it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from django_reliable_jobs import conf, payload
from django_reliable_jobs.connections.own_connection import own_connection
from django_reliable_jobs.connections.tests_transaction import in_a_tests
from django_reliable_jobs.definitions.job import JobDefinition, name_of
from django_reliable_jobs.errors import JobCancelled
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.running.returned import awaited_here, refuse_awaitable, refuse_unrun, to_the_end
from django_reliable_jobs.store import checkpoint as store
from django_reliable_jobs.store.settle_atomic import bound_idle
from django_reliable_jobs.store.tokens import fencing_tokens
from django_reliable_jobs.values.error_text import safe_text
from django_reliable_jobs.values.lease import Lease

T = TypeVar("T")

MAX_PROGRESS_MESSAGE = 500

_current: ContextVar[JobContext | None] = ContextVar("django_reliable_jobs_current", default=None)
_logger = logging.getLogger("django_reliable_jobs.job")


class JobContext:
    """The running attempt, for its handler. Made by the worker, or by `.call()` for a run without a job row."""

    def __init__(self, attempt: Attempt, alias: str | None) -> None:
        self._attempt = attempt
        self._alias = alias  # None: there is no row, what is saved stays in memory
        self._token = attempt.lease.token
        self._state: Any = None
        self._loaded = False
        self._uncommitted = False  # a checkpoint was saved in a transaction that has not been seen to commit

    @property
    def job_id(self) -> int:
        """The job's id; 0 in `.call()`."""
        return self._attempt.lease.job_id

    @property
    def name(self) -> str:
        return self._attempt.lease.name

    @property
    def attempt(self) -> int:
        """1 for the first attempt. A snooze or an orderly release gives the number back."""
        return self._attempt.lease.attempt

    @property
    def max_attempts(self) -> int | None:
        """None is no limit."""
        return self._attempt.lease.max_attempts

    @property
    def fencing_token(self) -> int:
        """Greater than the token of every earlier claim; pass it to whatever must refuse a stale writer.

        In `.call()`, which claims nothing, it is drawn from the same sequence when it is first asked for.
        """
        if self._alias is None and not self._token:
            self._token = _new_token()
        return self._token

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts of this job: the key that it was enqueued with, or one made of its name and id."""
        lease = self._attempt.lease
        return lease.idempotency_key or f"{lease.name}:{lease.job_id}"

    @property
    def scheduled_for(self) -> datetime | None:
        """The fire time that this job stands for, if a schedule enqueued it."""
        return self._attempt.lease.scheduled_for

    @property
    def deadline(self) -> datetime | None:
        """When the attempt's time is up, by this host's clock; decide with `time_left()`, which needs no wall clock."""
        left = self.time_left()
        return None if left is None else timezone.now() + timedelta(seconds=left)

    def time_left(self) -> float | None:
        """Seconds until the deadline (negative after it); None without a timeout."""
        deadline = self._attempt.deadline
        return None if deadline is None else deadline - time.monotonic()

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to cancel the job."""
        return self._attempt.stop_kind is JobCancelled

    def check(self) -> None:
        """Raise `JobCancelled`, `DeadlineExceeded` or `LeaseLost` if the handler is to stop."""
        self._attempt.check()

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the job is; it is stored with the next heartbeat or exchange, not by this call."""
        value = {"done": done, "total": total, "message": safe_text(message, MAX_PROGRESS_MESSAGE)}
        self._attempt.set_progress(payload.dumps(value, "the progress"))

    @property
    def state(self) -> Any:
        """What an attempt of this job saved last, or None.

        The first look stamps the checkpoint with this attempt's token, in a transaction of its own: an older attempt
        that is still running cannot save any more. Raises `StaleToken` when a newer attempt has been here.
        """
        if self._alias is not None and (self._uncommitted or not self._loaded):
            alias, key = self._alias, self._attempt.lease.key
            self._uncommitted = self._uncommitted and connections[alias].in_atomic_block
            # The row that this transaction has written is its own to read: what a savepoint's rollback left of it.
            run = _here if self._uncommitted else _in_own_transaction
            text = run(alias, lambda: store.load(alias, key))
            self._state, self._loaded = (None if text is None else payload.loads(text)), True
        return self._state

    def checkpoint(self, value: Any) -> None:
        """Save `value` (a payload) for the next attempt, in the caller's transaction if there is one.

        The effects of a batch and its checkpoint commit together. Raises `StaleToken`, and saves nothing, when a newer
        attempt owns the job; `PayloadError` for a value that cannot be stored.
        """
        text = payload.dumps(value, "the checkpoint", conf.current().max_payload_bytes)
        if self._alias is not None:
            left = self.time_left()
            if left is not None and connections[self._alias].in_atomic_block:
                # A process that is stopped in this transaction must not hold the checkpoint's row for ever.
                bound_idle(self._alias, max(left, 0) + conf.current().grace)
            store.save(self._alias, self._attempt.lease.key, text)
            if connections[self._alias].in_atomic_block:
                # A rollback would take it back: until the commit, `state` asks the database.
                self._uncommitted = True
                transaction.on_commit(lambda: self._saved(text), using=self._alias, robust=True)
                return
        self._saved(text)

    def _saved(self, text: str) -> None:
        self._state, self._loaded, self._uncommitted = payload.loads(text), True, False

    async def astate(self) -> Any:
        """`state` for coroutines."""
        return await sync_to_async(lambda: self.state)()

    async def acheckpoint(self, value: Any) -> None:
        """`checkpoint` for coroutines."""
        await sync_to_async(self.checkpoint)(value)

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """Logs to `django_reliable_jobs.job`, with the job's name, id and attempt in each message.

        Each record also has `job_id`, `job_name`, `job_queue` and `job_attempt`, as the worker's own about an attempt have.
        """
        return _JobLogger(_logger, self._attempt.lease.log_fields)


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        extra = self.extra or {}
        return f"{extra['job_name']} #{extra['job_id']}/{extra['job_attempt']}: {msg}", kwargs | {"extra": extra}


def current_job() -> JobContext | None:
    """The job that this code runs for, or None outside of one. Works below sync and coroutine handlers."""
    return _current.get()


def invocation(
    definition: JobDefinition, context: JobContext, args: list[Any], kwargs: dict[str, Any]
) -> tuple[contextvars.Context, Callable[[], Any]]:
    """What calls the handler, and the fresh `contextvars` context to call it in.

    A parameter named `scheduled_for` gets the fire time of a scheduled job, unless the call gives it.
    """
    variables = contextvars.Context()
    variables.run(_current.set, context)
    kwargs = definition.with_fire_time(args, kwargs, context.scheduled_for)
    given = (context, *args) if definition.takes_context else args
    return variables, partial(definition.function, *given, **kwargs)


def run_in_context(context: JobContext, function: Callable[[], T]) -> T:
    """Call `function` with `current_job()` being `context`."""
    token = _current.set(context)
    try:
        return function()
    finally:
        _current.reset(token)


def _here(alias: str, function: Callable[[], T]) -> T:
    return function()


def _in_own_transaction(alias: str, function: Callable[[], T]) -> T:
    """Run it where its commit does not depend on the caller's: on another connection if the caller is in `atomic()`.

    In the transaction of a `TestCase` it runs here: no other connection sees the job.
    """
    connection = connections[alias]
    elsewhere = connection.in_atomic_block and not in_a_tests(connection)
    return _elsewhere(alias, function) if elsewhere else function()


def _elsewhere(alias: str, function: Callable[[], T]) -> T:
    """Run it in a thread with a connection of its own."""
    result: list[T] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            # Beside Django's pool: the caller has one of its connections already, and the others may be waiting for theirs.
            with own_connection(alias, "beside a job"):
                result.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=target, name="reliable-jobs-own-transaction")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return result[0]


def _new_token() -> int:
    alias = conf.current().database
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return fencing_tokens(alias)[0]
    return _elsewhere(alias, lambda: fencing_tokens(alias)[0])  # Django's own connections refuse an event loop's thread


def _local_context(definition: JobDefinition) -> JobContext:
    lease = Lease(
        job_id=0, token=0, name=definition.name, queue=definition.queue, priority=definition.priority, args="[]",
        kwargs="{}", attempt=1, max_attempts=1, losses=0, timeout=None, idempotency_key=None, scheduled_for=None,
        run_at=timezone.now(),
    )  # fmt: skip
    return JobContext(Attempt(lease), alias=None)


def call(definition: JobDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a definition's function here and now, in `atomic()` if the job is atomic; errors are the caller's."""
    if definition.is_coroutine:
        raise TypeError(
            f"{definition.name} is a coroutine function: use `await {name_of(definition.function)}.acall(...)`."
        )
    definition.check_arguments(args, kwargs)
    context = _local_context(definition)
    given = (context, *args) if definition.takes_context else args
    if not definition.atomic:
        return run_in_context(context, lambda: _result(definition.function(*given, **kwargs)))
    with transaction.atomic(using=conf.current().database):
        value = run_in_context(context, lambda: definition.function(*given, **kwargs))
        refuse_awaitable(value, "an atomic job runs in one thread and transaction, where nothing can be awaited.")
        refuse_unrun(value)
        return value


def _result(value: Any) -> Any:
    value = awaited_here(value)
    refuse_unrun(value)
    return value


@sensitive_variables("args", "kwargs")
async def acall(definition: JobDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`call` for coroutine functions; a plain function runs in a thread."""
    if not definition.is_coroutine:
        return await sync_to_async(call)(definition, args, kwargs)
    definition.check_arguments(args, kwargs)
    context = _local_context(definition)
    token = _current.set(context)
    try:
        value = definition.function(*((context, *args) if definition.takes_context else args), **kwargs)
        value = await to_the_end(value)
        refuse_unrun(value)
        return value
    finally:
        _current.reset(token)
