"""One guard key at its store, every call bounded by `GUARDS["TIMEOUT"]`."""

from __future__ import annotations

import logging
import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from uuid import uuid4

from django.db import connections

from django_reliable_jobs import conf
from django_reliable_jobs.connections.own_connection import close
from django_reliable_jobs.errors import GuardUnavailable
from django_reliable_jobs.guards.database import in_transaction, reachable
from django_reliable_jobs.guards.protocol import GuardStore, current_store
from django_reliable_jobs.guards.store_threads import StoreThreads
from django_reliable_jobs.store.guards import PRUNE_AGE, prune
from django_reliable_jobs.values.names import check_text

logger = logging.getLogger("django_reliable_jobs.guards")

T = TypeVar("T")

MAX_KEY = 500
#: Seconds between two messages that the store is out of reach.
SAY_AGAIN = 60.0

#: With this share of the calls old claims are deleted, so many at a time.
PRUNE_SHARE = 0.01
PRUNE_BATCH = 1000

_callers = StoreThreads(16)
#: Renewals must not stand in line behind callers.
_renewals = StoreThreads(4)


@dataclass(frozen=True, slots=True)
class Guard:
    """A key of one kind at its store. Every method raises GuardUnavailable if the store does not answer in time."""

    kind: str
    key: str
    alias: str
    store: GuardStore

    @classmethod
    def of(cls, kind: str, key: str, using: str | None) -> Guard:
        """Check the key. Raises TypeError or ValueError for what is no key."""
        check_text(key, "a guard key", MAX_KEY)
        return cls(kind, key, using or conf.current().database, current_store())

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.key}"

    @property
    def joins(self) -> bool:
        """Whether claims made now are part of the caller's transaction."""
        return self.store.in_database and in_transaction(self.alias)

    def acquire(self, ttl: float | None, until: float | None = None) -> int | None:
        owner = f"{socket.gethostname()[:120]}:{os.getpid()}:{uuid4().hex}"

        def take_back(token: int | None) -> None:
            if token is not None:
                self.store.release(self.alias, self.name, token)

        return self._ask(lambda: self.store.acquire(self.alias, self.name, owner, ttl, until), undo=take_back)

    def renew(self, token: int, ttl: float, timeout: float) -> bool:
        """From the renewal's thread; in at most `timeout` seconds."""
        seconds = min(timeout, conf.current().guards["TIMEOUT"])
        return _renewals.call(self.alias, lambda: self.store.renew(self.alias, self.name, token, ttl), seconds)

    def finish(self, token: int, until: float | None) -> bool:
        """Turn the lease into a claim that stays until then."""
        return self._ask(lambda: self.store.renew(self.alias, self.name, token, None, until, done=True))

    def release(self, token: int) -> bool:
        return self._ask(lambda: self.store.release(self.alias, self.name, token))

    def now(self) -> float:
        return self._ask(lambda: self.store.now(self.alias))

    def _ask(self, call: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """On the caller's connection if it is open (and so in its transaction), otherwise on a helper's."""
        started, timeout = time.monotonic(), conf.current().guards["TIMEOUT"]
        # A connection that the server has closed since its last use says so at once, and then there is time to try again.
        try_again_until = started + timeout / 2
        if self.store.in_database and connections[self.alias].connection is not None:
            try:
                answer = call()
            except GuardUnavailable:
                if in_transaction(self.alias) or time.monotonic() > try_again_until:
                    raise
                close(connections[self.alias])
            else:
                self._prune_now_and_then()
                return answer

        def twice() -> T:
            try:
                return call()
            except GuardUnavailable:
                if time.monotonic() > try_again_until:
                    raise
                return call()

        answer = _callers.call(self.alias, twice, started + timeout - time.monotonic(), undo)
        self._prune_now_and_then()
        return answer

    def _prune_now_and_then(self) -> None:
        """For those who run no worker, whose maintenance does this. Where the claim was made: on the caller's connection,
        or by the helper, for which nobody waits. Not in a transaction, which would hold what it deletes."""
        if not self.store.in_database or random.random() >= PRUNE_SHARE or in_transaction(self.alias):
            return
        if connections[self.alias].connection is None:
            _callers.later(self.alias, lambda: _prune(self.alias))
        else:
            _prune(self.alias)


def _prune(alias: str) -> None:
    try:
        with reachable(alias):
            prune(alias, PRUNE_AGE, PRUNE_BATCH)
    except GuardUnavailable as error:
        logger.debug("deleting old claims failed: %s", error)


class _Complaints:
    """Says that the store is out of reach, once a minute.

    Without a lock, which a fork or a handler that is stopped in the middle would leave taken: a count may be one off.
    """

    def __init__(self) -> None:
        self._last = float("-inf")
        self._unsaid = 0

    def add(self, guard: Guard, error: GuardUnavailable) -> None:
        now = time.monotonic()
        if now - self._last < SAY_AGAIN:
            self._unsaid += 1
            return
        self._last, unsaid, self._unsaid = now, self._unsaid, 0
        more = f" ({unsaid} more since the last message)" if unsaid else ""
        logger.error("guard %s: %s%s", guard.name, error, more)


complaints = _Complaints()
