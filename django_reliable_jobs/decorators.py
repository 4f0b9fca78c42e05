"""`@job`, and what it makes of a function: a handle with the verbs that people call.

A definition is data that every room may read. The verbs stand above the tables: they import `enqueue`, which needs the
models, when they are called, since `jobs.py` is imported before the models are ready.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from asgiref.sync import sync_to_async
from django.apps import apps
from django.views.decorators.debug import sensitive_variables

from django_reliable_jobs.definitions.job import UNSET, BoundJob, JobDefinition, Key, Unset, UsingOptions
from django_reliable_jobs.definitions.registry import register
from django_reliable_jobs.definitions.validate import default_name, validate
from django_reliable_jobs.errors import JobConfigurationError
from django_reliable_jobs.values.backoff import BackoffSpec, as_backoff
from django_reliable_jobs.values.durations import optional_seconds

if TYPE_CHECKING:
    from django_reliable_jobs.models import Job
    from django_reliable_jobs.running.context import JobContext

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


#: Django's error reports (not with DEBUG) show no local variable of what is called from here on: arguments may be secret.
_hides_locals = sensitive_variables()


#: What other rooms of the package ask a definition for.
_INTERNAL = {
    "bound", "check_arguments", "function", "is_coroutine", "parameter_names", "wants_fire_time", "with_fire_time", "definition",
    "options",
}  # fmt: skip


def _ready() -> None:
    if not apps.models_ready:
        raise RuntimeError(
            "django_reliable_jobs is not ready: add it to INSTALLED_APPS and let Django set up before enqueueing."
        )


def _enqueue() -> ModuleType:
    _ready()
    from django_reliable_jobs import enqueue

    return enqueue


def _context() -> ModuleType:
    _ready()
    from django_reliable_jobs.running import context

    return context


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


class Verbs(Generic[P, R_co]):
    """What a job and a `using()` of it share."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        """What people call and read; what the package asks of a definition is not for them."""
        return [name for name in super().__dir__() if name not in _INTERNAL and not _is_private(name)]

    def bound(self) -> BoundJob:
        raise AssertionError("the definition, or what using() makes of it, says")

    @_hides_locals
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Store the job in the caller's transaction, if there is one, and return its `Job`.

        Raises `TypeError` for arguments that the handler does not take and `PayloadError` for values that cannot be
        stored; nothing is stored then, and the caller's transaction stays usable. Workers see the job after the commit.
        """
        job: Job = _enqueue().enqueue(self.bound(), args, kwargs)
        return job

    @_hides_locals
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """`enqueue` for coroutines."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)

    @_hides_locals
    def enqueue_many(self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[int]:
        """Store many calls, each a sequence of positional or a mapping of named arguments, in few round trips.

        Returns the jobs' ids in the order of the calls; with `if_exists="keep"` the id of the job that is there.
        All of them are stored, or none. Each call is checked as `enqueue` checks it; type checkers cannot.
        """
        ids: list[int] = _enqueue().enqueue_many(self.bound(), calls)
        return ids

    @_hides_locals
    async def aenqueue_many(self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[int]:
        """`enqueue_many` for coroutines."""
        return await sync_to_async(self.enqueue_many)(calls)


class BoundHandle(BoundJob, Verbs[P, R_co]):
    """A job with options for its next enqueue; made by `using()`."""

    __slots__ = ()


class JobHandle(JobDefinition, Verbs[P, R_co]):
    """What `@job` makes of a function."""

    bound_class: ClassVar[type[BoundJob]] = BoundHandle

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{self.name} is a job: use .enqueue(...) to have a worker run it, or"
            f" {'await .acall(...)' if self.is_coroutine else '.call(...)'} to run the function here and now."
        )

    def using(self, **options: Unpack[UsingOptions]) -> BoundHandle[P, R_co]:
        """Options for one enqueue: `send.using(delay=60, unique_key="x").enqueue(1)`."""
        return cast("BoundHandle[P, R_co]", self._bound.using(**options))

    @sensitive_variables("args", "kwargs")
    def call(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function here and now, without a job row, with a context of its own if it takes one."""
        run = _context().call
        if self.redact:
            run = sensitive_variables("args", "kwargs", "given", *self.redact)(run)
        return cast(R_co, run(self, args, kwargs))

    @overload
    async def acall(self: JobHandle[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @sensitive_variables("args", "kwargs")
    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """`call` for coroutine functions."""
        return await _context().acall(self, args, kwargs)


class JobOptions(TypedDict, total=False):
    """The keyword arguments of `job`, but for `takes_context`, which decides what the handler's parameters are."""

    name: str | None
    queue: str
    priority: int
    max_attempts: int | Unset | None
    timeout: float | timedelta | Unset | None
    backoff: BackoffSpec | None
    dead_on: Iterable[type[BaseException]]
    atomic: bool
    isolation: Literal["thread", "process"]
    aliases: Iterable[str]
    unique_key: Key
    unique_until: Literal["finish", "start"]
    expires: float | timedelta | None
    concurrency_key: Key
    concurrency: int | Callable[..., int] | None
    rate: Any
    redact: Iterable[str]
    memory_limit: int | None


@overload
def job(function: Callable[P, R], /) -> JobHandle[P, R]: ...
@overload
def job(
    *, takes_context: Literal[True], **options: Unpack[JobOptions]
) -> Callable[[Callable[Concatenate[JobContext, P], R]], JobHandle[P, R]]: ...
@overload
def job(
    *, takes_context: Literal[False] = ..., **options: Unpack[JobOptions]
) -> Callable[[Callable[P, R]], JobHandle[P, R]]: ...
def job(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    queue: str = "default",
    priority: int = 0,
    max_attempts: int | Unset | None = UNSET,
    timeout: float | timedelta | Unset | None = UNSET,
    backoff: BackoffSpec | None = None,
    dead_on: Iterable[type[BaseException]] = (),
    takes_context: bool = False,
    atomic: bool = False,
    isolation: Literal["thread", "process"] = "thread",
    aliases: Iterable[str] = (),
    unique_key: Key = None,
    unique_until: Literal["finish", "start"] = "finish",
    expires: float | timedelta | None = None,
    concurrency_key: Key = None,
    concurrency: int | Callable[..., int] | None = None,
    rate: Any = None,
    redact: Iterable[str] = (),
    memory_limit: int | None = None,
) -> JobHandle[..., Any] | Callable[[Callable[..., Any]], JobHandle[..., Any]]:
    """Make a job definition of a function or coroutine function.

    - `name`: default `app_label.function`. It is stored in every row; after a rename keep the old ones in `aliases`,
      the oldest first: it stays the scope of the job's keys.
    - `queue`, `priority` (-100..100, higher first).
    - `max_attempts`: None is no limit; default `MAX_ATTEMPTS`. `timeout`: seconds or `timedelta` for one attempt, None
      is no limit; default `TIMEOUT`.
    - `backoff`: a `Backoff`, a list of delays (the last one repeats) or a callable of the attempt number; the delay is
      jittered to 50-100 %. Default `BACKOFF`.
    - `dead_on`: exceptions that no further attempt can help.
    - `takes_context`: the handler's first argument is its `JobContext`.
    - `atomic`: the handler, its writes on `DATABASE` and the DONE mark commit in one transaction that verifies the
      fencing token. Not for coroutine functions: Django has no async `atomic()`.
    - `isolation`: `"thread"`, or `"process"` for a child process that can be killed; `memory_limit` in MiB needs it.
    - `unique_key`: a string or a callable of the arguments; at most one unfinished job of this definition has it.
      `unique_until="start"` frees the key when the job starts.
    - `expires`: seconds or `timedelta` after the enqueue; a job whose handler has not begun by then is CANCELLED. One that has
      once begun never expires.
    - `redact`: parameter names whose values are not shown to people.

    Raises `JobConfigurationError` for options that make no sense and for a name that is taken.
    """

    def decorate(function: Callable[..., Any]) -> JobHandle[..., Any]:
        where = f"@job on {getattr(function, '__qualname__', function)!s}"
        if isinstance(function, JobDefinition):
            raise JobConfigurationError(f"{where}: it is a job already; apply @job once.")
        if not callable(function):
            raise JobConfigurationError(f"{where}: @job needs a function.")
        if concurrency is not None or rate is not None or concurrency_key is not None:
            raise JobConfigurationError(
                f"{where}: this version does not enforce limits per key, so it does not take concurrency,"
                " concurrency_key and rate. Use `jobworker --queues name:slots` to bound a queue in a process."
            )
        try:
            definition: JobHandle[..., Any] = JobHandle(
                function=function,
                name=name or default_name(function),
                queue=queue,
                priority=priority,
                max_attempts=max_attempts,
                timeout=timeout if isinstance(timeout, Unset) else optional_seconds(timeout, "timeout"),
                backoff=None if backoff is None else as_backoff(backoff),
                dead_on=tuple(dead_on),
                takes_context=takes_context,
                atomic=atomic,
                isolation=isolation,
                aliases=tuple(aliases),
                unique_key=unique_key,
                unique_until=unique_until,
                expires=optional_seconds(expires, "expires"),
                redact=frozenset(redact),
                memory_limit=memory_limit,
            )
            validate(definition)
        except (TypeError, ValueError) as error:
            raise JobConfigurationError(f"{where}: {error}") from error
        register(definition)
        return definition

    return decorate if function is None else decorate(function)
