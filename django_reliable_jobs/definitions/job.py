"""A job definition: what `@job` makes of a function, and what `.using()` makes of that.

Nothing here touches the database. `enqueue` and `call` go through a port that `enqueue.py` fills in when the app is
ready, since a definition stands below the tables it is stored in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import WRAPPER_ASSIGNMENTS, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, Unpack

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.views.decorators.debug import sensitive_variables

from django_reliable_jobs.values.backoff import BackoffSpec

if TYPE_CHECKING:
    from django_reliable_jobs.models import Job

IfExists = Literal["keep", "replace", "raise"]
Key = str | Callable[..., str | None] | None


class Unset:
    """Stands for "not given", where None has a meaning of its own."""

    def __repr__(self) -> str:
        return "<not given>"


UNSET = Unset()


@dataclass(frozen=True, slots=True)
class Options:
    """What may differ from call to call. Durations are seconds or `timedelta`; None is no limit where that exists."""

    queue: str | Unset = UNSET
    priority: int | Unset = UNSET
    run_at: datetime | None = None
    delay: float | timedelta | None = None
    expires: datetime | float | timedelta | Unset | None = UNSET
    unique_key: Key | Unset = UNSET
    if_exists: IfExists = "keep"
    unique_until: Literal["finish", "start"] | Unset = UNSET
    idempotency_key: Key = None
    max_attempts: int | Unset | None = UNSET
    timeout: float | timedelta | Unset | None = UNSET
    concurrency_key: Key | Unset = UNSET
    database: str | None = None


class UsingOptions(TypedDict, total=False):
    """The keyword arguments of `using()`; `queue_name` and `run_after` are Django's own names for the same."""

    queue: str
    queue_name: str
    priority: int
    run_at: datetime | None
    run_after: datetime | timedelta | float | None
    delay: float | timedelta | None
    expires: datetime | float | timedelta | None
    unique_key: Key
    if_exists: IfExists
    unique_until: Literal["finish", "start"]
    idempotency_key: Key
    max_attempts: int | None
    timeout: float | timedelta | None
    database: str | None


class Port(Protocol):
    """What `enqueue.py` provides."""

    def enqueue(self, job: BoundJob, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job: ...
    def enqueue_many(self, job: BoundJob, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[int]: ...
    def call(self, definition: JobDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    async def acall(self, definition: JobDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


_port: Port | None = None


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether a call returns a coroutine, as far as that can be seen; a partial, a method and a callable object too."""
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def origin(function: Callable[..., Any]) -> Callable[..., Any]:
    """What knows its module: of a partial its function."""
    while isinstance(function, partial):
        function = function.func
    return function


def name_of(function: Callable[..., Any]) -> str:
    """The qualified name of a function, of a partial's function, or of the class of an object that has none."""
    function = origin(function)
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name


def install(port: Port) -> None:
    global _port
    _port = port


def _installed() -> Port:
    if _port is None:
        raise RuntimeError(
            "django_reliable_jobs is not ready: add it to INSTALLED_APPS and let Django set up before enqueueing."
        )
    return _port


#: Django's error reports (not with DEBUG) show no local variable of what is called from here on: arguments may be secret.
_hides_locals = sensitive_variables()


#: What other rooms of the package ask a definition for.
_INTERNAL = {
    "bound", "check_arguments", "function", "is_coroutine", "parameter_names", "wants_fire_time", "with_fire_time", "definition",
    "options",
}  # fmt: skip


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


class Enqueueable:
    """The verbs that a definition and a `using()` of it share."""

    def __dir__(self) -> list[str]:
        """What people call and read; what the package asks of a definition is not for them."""
        return [name for name in super().__dir__() if name not in _INTERNAL and not _is_private(name)]

    def bound(self) -> BoundJob:
        raise AssertionError("every subclass says what it stands for")

    @_hides_locals
    def enqueue(self, *args: Any, **kwargs: Any) -> Job:
        """Store the job in the caller's transaction, if there is one, and return its `Job`.

        Raises `TypeError` for arguments that the handler does not take and `PayloadError` for values that cannot be
        stored; nothing is stored then, and the caller's transaction stays usable. Workers see the job after the commit.
        """
        return _installed().enqueue(self.bound(), args, kwargs)

    @_hides_locals
    async def aenqueue(self, *args: Any, **kwargs: Any) -> Job:
        """`enqueue` for coroutines."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)

    @_hides_locals
    def enqueue_many(self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[int]:
        """Store many calls, each a sequence of positional or a mapping of named arguments, in few round trips.

        Returns the jobs' ids in the order of the calls; with `if_exists="keep"` the id of the job that is there.
        All of them are stored, or none.
        """
        return _installed().enqueue_many(self.bound(), calls)

    @_hides_locals
    async def aenqueue_many(self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[int]:
        """`enqueue_many` for coroutines."""
        return await sync_to_async(self.enqueue_many)(calls)


@dataclass(frozen=True, slots=True)
class BoundJob(Enqueueable):
    """A definition with options for its next enqueue; made by `using()`."""

    definition: JobDefinition
    options: Options = field(default_factory=Options)

    def bound(self) -> BoundJob:
        return self

    def using(self, **options: Unpack[UsingOptions]) -> BoundJob:
        """The same with more options."""
        changes: dict[str, Any] = dict(options)
        for theirs, ours in (("queue_name", "queue"), ("run_after", "run_at")):
            if theirs in changes:
                if ours in changes:
                    raise TypeError(f"using(): give {ours} or {theirs}, not both.")
                changes[ours] = changes.pop(theirs)
        if isinstance(changes.get("run_at"), (int, float, timedelta)):
            changes["delay"] = changes.pop("run_at")
        unknown = changes.keys() - Options.__dataclass_fields__.keys()
        if unknown:
            accepted = ", ".join(name for name in Options.__dataclass_fields__ if name != "concurrency_key")
            raise TypeError(
                f"using() got an unexpected option {sorted(unknown)[0]!r}; it takes {accepted}, queue_name, run_after."
            )
        made = replace(self.options, **changes)
        if made.run_at is not None and made.delay is not None:
            raise TypeError("using(): give run_at or delay, not both.")
        return BoundJob(self.definition, made)


@dataclass(frozen=True, eq=False)
class JobDefinition(Enqueueable):
    """The decorated function with its options. Made by `@job`; see `registry.job` for what each option means."""

    function: Callable[..., Any]
    name: str
    queue: str = "default"
    priority: int = 0
    max_attempts: int | Unset | None = UNSET
    timeout: float | Unset | None = UNSET
    backoff: BackoffSpec | None = None
    dead_on: tuple[type[BaseException], ...] = ()
    takes_context: bool = False
    atomic: bool = False
    isolation: Literal["thread", "process"] = "thread"
    aliases: tuple[str, ...] = ()
    unique_key: Key = None
    unique_until: Literal["finish", "start"] = "finish"
    expires: float | None = None
    redact: frozenset[str] = frozenset()
    memory_limit: int | None = None

    #: The handler's signature without the context, as a caller sees it.
    signature: inspect.Signature = field(init=False, repr=False)
    is_coroutine: bool = field(init=False, repr=False)
    #: The handler has a parameter `scheduled_for`, which gets the fire time of a scheduled job.
    wants_fire_time: bool = field(init=False, repr=False)
    parameter_names: tuple[str, ...] = field(init=False, repr=False)
    _counts: range = field(init=False, repr=False)
    _positional_only: tuple[str, ...] = field(init=False, repr=False)
    _bound: BoundJob = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parameters = list(inspect.signature(self.function).parameters.values())
        if self.takes_context:
            parameters = parameters[1:]
        set_once = object.__setattr__
        set_once(self, "signature", inspect.Signature(parameters))
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        set_once(self, "wants_fire_time", any(p.name == "scheduled_for" and p.kind in named for p in parameters))
        set_once(self, "is_coroutine", is_coroutine_function(self.function))
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        set_once(self, "parameter_names", tuple(p.name for p in positional))
        # A call with positional arguments only is checked by counting them; anything else goes through Signature.bind.
        simple = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)
        least = sum(p.default is p.empty for p in positional)
        most = 1 << 30 if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(positional)
        required = [p.name for p in positional if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
        set_once(self, "_positional_only", tuple(required))
        set_once(self, "_counts", range(least, most + 1) if simple else range(0))
        set_once(self, "_bound", BoundJob(self))
        for attribute in WRAPPER_ASSIGNMENTS:  # as functools.wraps does, past the frozen dataclass
            with suppress(AttributeError):
                set_once(self, attribute, getattr(self.function, attribute))
        set_once(self, "__wrapped__", self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{self.name} is a job: use .enqueue(...) to have a worker run it, or"
            f" {'await .acall(...)' if self.is_coroutine else '.call(...)'} to run the function here and now."
        )

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    @property
    def scope(self) -> str:
        """Whose its keys are: its oldest name, so that they outlive a rename."""
        return self.aliases[0] if self.aliases else self.name

    def bound(self) -> BoundJob:
        return self._bound

    def check_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise `TypeError` unless the handler can be called with these."""
        if not kwargs and len(args) in self._counts:
            return
        try:
            self.signature.bind(*args, **kwargs)
            # Python 3.13.0 lets a keyword that `**kwargs` takes stand for a positional-only argument.
            if len(args) < len(self._positional_only):
                raise TypeError(f"missing a required argument: {self._positional_only[len(args)]!r}")
        except TypeError as error:
            raise TypeError(f"{self.name}{self.signature}: {error}") from None

    def with_fire_time(
        self, args: Sequence[Any], kwargs: dict[str, Any], scheduled_for: datetime | None
    ) -> dict[str, Any]:
        """The named arguments, with the fire time if the handler has a parameter for it that the call leaves open."""
        if scheduled_for is None or not self.wants_fire_time or "scheduled_for" in kwargs:
            return kwargs
        given = "scheduled_for" in self.parameter_names[: len(args)]
        return kwargs if given else kwargs | {"scheduled_for": scheduled_for}

    def using(self, **options: Unpack[UsingOptions]) -> BoundJob:
        """Options for one enqueue: `send.using(delay=60, unique_key="x").enqueue(1)`."""
        return self._bound.using(**options)

    @sensitive_variables("args", "kwargs")
    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function here and now, without a job row, with a context of its own if it takes one."""
        run = _installed().call
        if self.redact:
            run = sensitive_variables("args", "kwargs", "given", *self.redact)(run)
        return run(self, args, kwargs)

    @sensitive_variables("args", "kwargs")
    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """`call` for coroutine functions."""
        return await _installed().acall(self, args, kwargs)
