"""An advisory lock that ends with the transaction."""

from __future__ import annotations

from django.db import connections
from django.db.transaction import TransactionManagementError

from django_reliable_jobs import conf
from django_reliable_jobs.store import fences


def advisory_xact_lock(key: str, *, using: str | None = None) -> None:
    """Wait for PostgreSQL's advisory lock of this key and hold it until the transaction ends.

    For short critical sections inside `atomic()`, where there is no row to lock. It is the transaction's lock
    (`pg_advisory_xact_lock`) and never the session's, for two reasons. Behind a pooler a session belongs to nobody: the
    unlock may be sent to another server connection, where it does nothing, and the lock stays with the first one. And a
    session's lock is free as soon as its connection breaks, while the process that held it goes on and writes; what is
    under this lock is rolled back with it.

    It is no lease: nobody else gets in while its holder is stopped, so keep the transaction short or bound it with
    `idle_in_transaction_session_timeout`. A waiting session makes `CREATE INDEX CONCURRENTLY` wait. `lock_timeout`, if
    you set one, holds here too. Two keys may share a number (64 bits of hash): then they wait for each other.
    """
    alias = using or conf.current().database
    if not connections[alias].in_atomic_block:
        raise TransactionManagementError("advisory_xact_lock() has to be called inside atomic(): it ends with it.")
    fences.advisory_xact_lock(alias, key)
