"""What a job definition's options may be."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from django.apps import apps

from django_reliable_jobs.definitions.job import JobDefinition, Unset
from django_reliable_jobs.values.names import check_text

MAX_NAME = 200
MAX_QUEUE = 100


def default_name(function: Callable[..., Any]) -> str:
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


def validate(d: JobDefinition) -> None:
    """Raises TypeError or ValueError for options that make no sense."""
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
