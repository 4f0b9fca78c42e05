"""Whose fault an error is: the handler's, or that of the database on which the jobs are (protocol 30).

A connection that is lost, a server that is starting, stopping or in recovery, one that has become read-only, a pool that has
no connection left: none of these says anything about the job. An error that looks the same on another alias is the job's own,
as is the refusal of a write that the handler itself has asked to be refused (SET TRANSACTION READ ONLY). Which connection an
error comes from is in its traceback: the innermost frame of Django's database layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import Error as PsycopgError

#: SQLSTATE of lost connections, of servers that stop, crash or start, and of those that take no more connections.
_GONE = ("08", "57P01", "57P02", "57P03", "57P05", "53300")
_READ_ONLY = "25006"


def reason(error: BaseException, alias: str, *, wants_read_only: bool = False) -> str:
    """What was wrong with the database `alias`, if `error` or what it was raised from comes of that; otherwise nothing."""
    for one in _chain(error):
        if isinstance(one, BaseExceptionGroup):
            found = [reason(member, alias, wants_read_only=wants_read_only) for member in one.exceptions]
            return found[0] if all(found) else ""
        text = _what(one, wants_read_only)
        if text and _alias_of(one) == alias:
            return text
    return ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _what(error: BaseException, wants_read_only: bool) -> str:
    if not isinstance(error, (DatabaseError, InterfaceError)) or not isinstance(error.__cause__, PsycopgError):
        return ""
    state = error.__cause__.sqlstate
    if state is None:
        return "the database could not be reached" if isinstance(error, OperationalError) else ""
    if state.startswith(_GONE):
        return "the database ended the connection"
    if state == _READ_ONLY and not wants_read_only:
        return "the database takes no writes"
    return ""


def _alias_of(error: BaseException) -> str | None:
    found = None
    step: TracebackType | None = error.__traceback__
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__", "")).startswith("django.db"):
            found = _connection(step.tb_frame.f_locals.get("self")) or found
        step = step.tb_next
    return None if found is None else found.alias


def _connection(owner: Any) -> BaseDatabaseWrapper | None:
    """Of a wrapper, a cursor of it, or what translates its errors."""
    for candidate in (owner, getattr(owner, "db", None), getattr(owner, "wrapper", None)):
        if isinstance(candidate, BaseDatabaseWrapper):
            return candidate
    return None
