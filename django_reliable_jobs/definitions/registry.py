"""The names under which this process knows its jobs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from typing import NamedTuple

from django.apps import apps
from django.utils.module_loading import autodiscover_modules

from django_reliable_jobs.definitions.job import JobDefinition, name_of, origin
from django_reliable_jobs.errors import JobConfigurationError, UnknownJob

_lock = threading.Lock()
_by_name: dict[str, JobDefinition] = {}


def register(definition: JobDefinition) -> None:
    """Raises `JobConfigurationError` for a name that another function's job has."""
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
