"""What a guard asks of its store, and which store that is.

A store is small: three verbs, each one atomic statement that uses the store's own clock, and that clock. It may block;
`guard.ask` bounds every call. An own store is any class with these methods, named in `GUARDS["STORE"]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from django_reliable_jobs import conf


class GuardStore(Protocol):
    """Raises `GuardUnavailable`, and nothing else, when it cannot be reached.

    A claim ends `ttl` seconds from now, or at the moment `until` (seconds since 1970 by the store's clock) if that is
    given, or never if both are None. `alias` is the database whose sequence the tokens come from.
    """

    #: It works on the connection of `alias`, so that a claim in a transaction commits or vanishes with it.
    in_database: bool

    def acquire(self, alias: str, key: str, owner: str, ttl: float | None, until: float | None = None) -> int | None:
        """Return the claim's token, greater than any before it; None if the key is taken, or `until` has passed.

        `owner` names one call: the same one asks again after a lost answer, and gets the claim.
        """

    def renew(
        self, alias: str, key: str, token: int, ttl: float | None, until: float | None = None, *, done: bool = False
    ) -> bool:
        """Give the claim a new end; False if it has expired or is another's. After `done` it is refused for good."""

    def release(self, alias: str, key: str, token: int) -> bool:
        """Free the key; False if the claim has expired or is another's, which is then left alone."""

    def now(self, alias: str) -> float:
        """Return the store's time, in seconds since 1970."""


_VERBS = ("acquire", "renew", "release", "now")
_store: tuple[Mapping[str, Any], GuardStore] | None = None


def current_store() -> GuardStore:
    """Return the store that the settings name, one instance a process. Raises ImproperlyConfigured."""
    global _store
    settings = conf.current().guards
    if _store is None or _store[0] is not settings:
        _store = settings, make_store(settings["STORE"], settings["OPTIONS"])
    return _store[1]


def make_store(path: str, options: Mapping[str, Any]) -> GuardStore:
    """Import the class and make it with these options. Raises ImproperlyConfigured, which names the setting."""
    try:
        store: GuardStore = import_string(path)(**options)
    except (ImportError, TypeError, ValueError) as error:
        raise ImproperlyConfigured(f'RELIABLE_JOBS["GUARDS"]: the store {path!r} cannot be made: {error}') from error
    missing = [name for name in _VERBS if not callable(getattr(store, name, None))]
    if not isinstance(getattr(store, "in_database", None), bool):
        missing.append("in_database")
    if missing:
        raise ImproperlyConfigured(f'RELIABLE_JOBS["GUARDS"]: the store {path!r} is no GuardStore: no {missing[0]}')
    return store
