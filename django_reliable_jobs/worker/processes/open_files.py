"""Whether a process may open as many files as its slots will need: it breaks in the middle of its work otherwise."""

from __future__ import annotations

import sys

from django_reliable_jobs.definitions import registry

#: For the worker's own connections and pipes, the project's log files, and queries that are being cancelled.
FOR_ITSELF = 64
#: A slot has its connection, and its handler a file or a connection of its own.
FOR_A_SLOT = 2
#: A slot that has run a coroutine has an event loop (three), and the connection of its `sync_to_async` thread.
FOR_COROUTINES = 4
#: A slot that has run an isolated job keeps a channel to its child.
FOR_ISOLATED = 1


def too_many_slots(slots: int) -> str | None:
    """What is wrong with so many slots a process, by the limit in force and the kinds of jobs that there are."""
    limit = _limit()
    each = _for_a_slot()
    if limit is None or FOR_ITSELF + slots * each <= limit:
        return None
    fit = (limit - FOR_ITSELF) // each
    can = f"at most --slots {fit} fit" if fit > 0 else "not even one fits"
    return (
        f"--slots {slots} needs about {FOR_ITSELF + slots * each} open files, and a process may have {limit} (ulimit -n):"
        f" {can}. Raise that limit, or use fewer slots and more --processes."
    )


def _for_a_slot() -> int:
    definitions = [registry.find(name) for name in registry.names()]
    coroutines = any(definition.is_coroutine for definition in definitions)
    isolated = any(definition.isolation == "process" for definition in definitions)
    return FOR_A_SLOT + FOR_COROUTINES * coroutines + FOR_ISOLATED * isolated


def _limit() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft
