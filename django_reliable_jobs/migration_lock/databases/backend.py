"""What a database has to offer for a migration lock. One module a database: `postgres`, `mysql`, `sqlite`."""

from __future__ import annotations

import logging
from typing import Protocol

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.migration_lock.identity import Holder

logger = logging.getLogger("django_reliable_jobs.migrate")


class NoAnswer(OperationalError):
    """A statement was not answered in time, and the connection was cut."""


class LockBackend(Protocol):
    """A lock on a connection of its own. Every call is short: whoever waits does so between the calls.

    Any call may raise Django's database errors. `within` (seconds) bounds how long an answer is waited for; then the
    connection is cut: `NoAnswer`.
    """

    #: How the lock is called in messages: of which database it is, and its key.
    name: str

    def open(self, within: float) -> None:
        """Connect. Raises `ImproperlyConfigured` where a lock could not be relied on."""

    def try_acquire(self, within: float) -> bool:
        """Take the lock if it is free and no earlier run is under way that has lost it; leave a mark on it."""

    def holder(self) -> Holder | None:
        """Return who is in the way; None if nobody is."""

    def check(self, within: float) -> None:
        """Raise an error unless the lock is still ours. Leaves no snapshot and no transaction behind."""

    def release(self) -> bool:
        """Give the lock back; False if it was not ours any more."""

    def interrupt(self) -> None:
        """From another thread: have a call that waits for an answer fail at once. Never raises."""

    def close(self) -> None:
        """Close the connection, whatever state it is in. Never raises."""


def close_quietly(wrapper: BaseDatabaseWrapper) -> None:
    """Close the connection, whatever state it is in."""
    raw, wrapper.connection = wrapper.connection, None
    if raw is not None:
        try:
            raw.close()
        except Exception as error:  # noqa: BLE001 - it is thrown away
            logger.debug("closing the connection of the migration lock failed: %s", error)
