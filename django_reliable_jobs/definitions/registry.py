"""`@job`, and the names under which this process knows its jobs."""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, Literal, NamedTuple, overload

from django.apps import apps
from django.utils.module_loading import autodiscover_modules

from django_reliable_jobs.definitions.job import UNSET, JobDefinition, Key, Unset, name_of, origin
from django_reliable_jobs.errors import JobConfigurationError, UnknownJob
from django_reliable_jobs.values.backoff import BackoffSpec, as_backoff
from django_reliable_jobs.values.durations import optional_seconds
from django_reliable_jobs.values.names import check_text

_lock = threading.Lock()
_by_name: dict[str, JobDefinition] = {}

MAX_NAME = 200
MAX_QUEUE = 100


@overload
def job(function: Callable[..., Any], /) -> JobDefinition: ...
@overload
def job(
    *,
    name: str | None = ...,
    queue: str = ...,
    priority: int = ...,
    max_attempts: int | Unset | None = ...,
    timeout: float | timedelta | Unset | None = ...,
    backoff: BackoffSpec | None = ...,
    dead_on: Iterable[type[BaseException]] = ...,
    takes_context: bool = ...,
    atomic: bool = ...,
    isolation: Literal["thread", "process"] = ...,
    aliases: Iterable[str] = ...,
    unique_key: Key = ...,
    unique_until: Literal["finish", "start"] = ...,
    expires: float | timedelta | None = ...,
    concurrency_key: Key = ...,
    concurrency: int | Callable[..., int] | None = ...,
    rate: Any = ...,
    redact: Iterable[str] = ...,
    memory_limit: int | None = ...,
) -> Callable[[Callable[..., Any]], JobDefinition]: ...
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
) -> JobDefinition | Callable[[Callable[..., Any]], JobDefinition]:
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

    def decorate(function: Callable[..., Any]) -> JobDefinition:
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
            definition = JobDefinition(
                function=function,
                name=name or _default_name(function),
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
            _validate(definition)
        except (TypeError, ValueError) as error:
            raise JobConfigurationError(f"{where}: {error}") from error
        _register(definition)
        return definition

    return decorate if function is None else decorate(function)


def _default_name(function: Callable[..., Any]) -> str:
    if not hasattr(function, "__name__"):
        raise ValueError("a partial or a callable object has no name of its own; give it a name=.")
    module = function.__module__
    if not apps.apps_ready:
        raise ValueError(
            "the app that it belongs to is not known yet, since Django is not set up; give it a name= or import its"
            " module after django.setup()."
        )
    config = apps.get_containing_app_config(module)
    return f"{config.label if config else module.removesuffix('.jobs')}.{function.__name__}"


def _validate(d: JobDefinition) -> None:
    check_queue(d.queue)
    check_priority(d.priority)
    if not isinstance(d.max_attempts, Unset):
        check_max_attempts(d.max_attempts)
    for name in (d.name, *d.aliases):
        check_text(name, "the name of a job, and each of its aliases,", MAX_NAME)
    for kind in d.dead_on:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"dead_on takes exception classes, not {kind!r}.")
    if d.isolation not in ("thread", "process"):
        raise ValueError(f'isolation is "thread" or "process", not {d.isolation!r}.')
    if d.unique_until not in ("finish", "start"):
        raise ValueError(f'unique_until is "finish" or "start", not {d.unique_until!r}.')
    if d.atomic and d.is_coroutine:
        raise TypeError("Django has no async atomic(): an atomic job cannot be a coroutine function.")
    if inspect.isgeneratorfunction(d.function) or inspect.isasyncgenfunction(d.function):
        raise TypeError(
            "a generator function would not run when it is called; @job needs a function that does the work."
        )
    if d.memory_limit is not None and (d.isolation != "process" or d.memory_limit < 1):
        raise ValueError('memory_limit is a number of MiB and needs isolation="process".')
    if d.takes_context and not inspect.signature(d.function).parameters:
        raise TypeError("takes_context=True needs a first parameter for the context.")
    if unknown := d.redact - set(d.signature.parameters):
        raise ValueError(f"redact names {sorted(unknown)[0]!r}, which is not a parameter of the handler.")


def check_queue(queue: object) -> str:
    try:
        return check_text(queue, "a queue", MAX_QUEUE, without=",: ")
    except TypeError as error:
        raise ValueError(str(error)) from None


def check_priority(priority: object) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool) or not -100 <= priority <= 100:
        raise ValueError(f"priority is a whole number from -100 to 100, not {priority!r}.")
    return priority


def check_max_attempts(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31):
        raise ValueError(f"max_attempts is a whole number of at least 1, or None for no limit, not {value!r}.")
    return value


def _register(definition: JobDefinition) -> None:
    with _lock:
        for name in (definition.name, *definition.aliases):
            taken = _by_name.get(name)
            if taken is not None and not _same_function(taken, definition):
                raise JobConfigurationError(
                    f"two jobs are named {name!r}: {_place(taken)} and {_place(definition)}. Give one of them a name=."
                )
        for name in (definition.name, *definition.aliases):
            _by_name[name] = definition


def _same_function(one: JobDefinition, other: JobDefinition) -> bool:
    """A module that is imported again (a reload) defines the same jobs again."""
    return one.name == other.name and _place(one) == _place(other)


def _place(definition: JobDefinition) -> str:
    return f"{origin(definition.function).__module__}.{name_of(definition.function)}"


def find(name: str) -> JobDefinition:
    """The definition with this name or alias. Raises `UnknownJob`."""
    try:
        return _by_name[name]
    except KeyError:
        raise UnknownJob(
            f"no job is named {name!r} in this process; known: {', '.join(sorted(_by_name)) or 'none'}."
        ) from None


def is_known(name: str) -> bool:
    """Whether `find` would find it."""
    return name in _by_name


def names() -> list[str]:
    """Every name and alias that `find` knows."""
    return list(_by_name)


class NamesKnown(NamedTuple):
    """The names that `find` knows, sorted, and a digest that is the same wherever these are known."""

    digest: str
    names: tuple[str, ...]


_known = NamesKnown("", ())


def known() -> NamesKnown:
    """For the other workers (protocol 28). What a table cannot hold no job can be named."""
    global _known
    found = _known
    if not found.digest or len(found.names) != len(_by_name):  # it only grows
        names = tuple(sorted(_by_name))
        text = "\n".join(repr(name) for name in names)
        found = _known = NamesKnown(hashlib.sha256(text.encode()).hexdigest(), names)
    return found


def queues() -> set[str]:
    """The queues that definitions name."""
    return {definition.queue for definition in _by_name.values()}


def looked_for(name: str) -> str:
    """Where a definition of this name would be looked for, in words for people."""
    owner, dot, function = name.rpartition(".")
    if not dot:
        return f"a @job(name={name!r}) in jobs.py of an installed app, or in a module that one of them imports"
    for config in apps.get_app_configs():
        if config.label == owner:
            return f"a @job function {function!r} in {config.name}.jobs, or in a module that it imports"
    return (
        f"a @job function {function!r} of {owner!r}, which is the label of no installed app; only jobs.py of installed apps"
        " is looked for, and what it imports"
    )


def all_definitions() -> Iterator[JobDefinition]:
    """Every definition once, by name."""
    for name, definition in sorted(_by_name.items()):
        if name == definition.name:
            yield definition


def autodiscover() -> None:
    """Import `jobs.py` of every installed app. An error in one of them is not swallowed."""
    autodiscover_modules("jobs")
