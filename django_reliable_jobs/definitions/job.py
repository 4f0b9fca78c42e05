"""A job definition: what `@job` says of a function, and what `.using()` adds for one enqueue. Data; the verbs are the handle's.

Nothing here touches the database.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import WRAPPER_ASSIGNMENTS, partial
from typing import Any, ClassVar, Literal, Self, TypedDict, Unpack

from asgiref.sync import iscoroutinefunction

from django_reliable_jobs.values.backoff import BackoffSpec

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


@dataclass(frozen=True, slots=True)
class BoundJob:
    """A definition with options for its next enqueue; made by `using()`."""

    definition: JobDefinition
    options: Options = field(default_factory=Options)

    def bound(self) -> BoundJob:
        return self

    def using(self, **options: Unpack[UsingOptions]) -> Self:
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
        return replace(self, options=made)


@dataclass(frozen=True, eq=False)
class JobDefinition:
    """A function with its options; see `decorators.job` for what each option means."""

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

    #: What `using()` makes.
    bound_class: ClassVar[type[BoundJob]] = BoundJob

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
        set_once(self, "_bound", self.bound_class(self))
        for attribute in WRAPPER_ASSIGNMENTS:  # as functools.wraps does, past the frozen dataclass
            with suppress(AttributeError):
                set_once(self, attribute, getattr(self.function, attribute))
        set_once(self, "__wrapped__", self.function)

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
