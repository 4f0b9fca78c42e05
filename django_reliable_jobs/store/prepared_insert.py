"""Prepares the enqueue's INSERT on the caller's connections, which are Django's and not ours.

Planning it takes as long as running it. Django prepares nothing, since behind a transaction pooler a prepared statement
belongs to whoever uses that server connection next (protocol 19). So a connection first has to show two things: that it is
used for more than an enqueue or two, which one that ends with its request is not, and that no pooler stands between. Both are
remembered for as long as it lives. Only this statement is prepared; what the project does on the connection stays as it is.

DISCARD ALL and DEALLOCATE ALL take the statement away without our knowing. Pools may do that between two users, so a pooled
connection prepares nothing. On another one the enqueue after it is done unprepared, and so are all that follow; within a
transaction that one enqueue fails, as it cannot be repeated there.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from psycopg import RawCursor
from psycopg.errors import InvalidSqlStatementName
from psycopg.pq import TransactionStatus

from django_reliable_jobs.connections.own_connection import goes_through_a_pooler

#: Enqueues on a connection before the question is worth a round trip.
USED_TO = 5
NEVER = -1

# Without a lock: each change is one step of the interpreter, and two threads that use one connection at the same time cost a
# count at most. A lock could be taken at the moment of a fork, or by a handler that is stopped just then: for ever.
_uses: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


class PreparingCursor(RawCursor[Any]):
    """Prepares what it executes, whatever the connection's own threshold is, which stays."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        connection = self.connection
        threshold, connection.prepare_threshold = connection.prepare_threshold, 0
        try:
            return super().execute(query, params, **options | {"prepare": True})
        except InvalidSqlStatementName:
            _uses[connection] = NEVER
            if connection.info.transaction_status is not TransactionStatus.IDLE:
                raise
        finally:
            connection.prepare_threshold = threshold
        return super().execute(query, params, **options)


def may_prepare(raw: Any) -> bool:
    """Whether this psycopg connection goes straight to PostgreSQL and has been used for a while."""
    uses = NEVER if getattr(raw, "_pool", None) is not None else _uses.get(raw, 0)
    if uses > USED_TO:
        return True
    if uses == NEVER:
        return False
    if uses == USED_TO and goes_through_a_pooler(raw):
        uses = NEVER - 1
    _uses[raw] = uses + 1
    return False
