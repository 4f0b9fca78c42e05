"""What the migration lock is called, and how its sessions are recognised.

Two things are agreed between processes, and between versions of this package: the key, and the marks that sessions
bear as their `application_name`, which everybody may read whatever their role. A mark has room for 63 characters.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from dataclasses import dataclass

from django_reliable_jobs import conf

_LONGEST_MARK = 63  # PostgreSQL cuts an application_name there
_LOCK = re.compile(r"migrate-lock (\d+) (\d+) (\S+)")
_RUN = re.compile(r"migrate-run [0-9a-f]{16} (\d+) (\S+)")


def key_for(database: str, schema: str | None) -> int:
    """Return the lock's key, a signed 64-bit number: the one in MIGRATE["KEY"], or one for this database and schema."""
    asked: int | None = conf.current().migrate["KEY"]
    if asked is not None:
        return asked
    text = f"django_reliable_jobs.migrate\0{database}\0{schema or ''}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)


def hexadecimal(key: int) -> str:
    return f"{key % 2**64:016x}"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock, as far as its session tells.

    `seconds`: for how long. `session`: as the server calls it. `lost`: the lock was cut off from this run, which has
    not come to its end yet.
    """

    host: str = ""
    pid: int | None = None
    seconds: float | None = None
    session: str = ""
    lost: bool = False

    def __str__(self) -> str:
        """Say it so that "the migration lock is ..." and "waiting for the migration lock, ..." can stand before it."""
        known = [f"host {self.host}, pid {self.pid}"] if self.pid is not None else []
        known += [f"for {self.seconds:.0f} s"] if self.seconds is not None else []
        text = ", ".join(known)
        text = f"{text} ({self.session})" if text and self.session else text or self.session or "an unknown session"
        return f"lost by {text}, which has not ended yet" if self.lost else f"held by {text}"


def lock_mark(since: int) -> str:
    """The mark of the session that holds the lock. `since`: the server's time, in seconds since 1970."""
    return _mark(f"migrate-lock {since} {os.getpid()} ")


def run_mark(key: int) -> str:
    """The mark of the session that changes the schema under the lock."""
    return _mark(f"{run_mark_prefix(key)}{os.getpid()} ")


def run_mark_prefix(key: int) -> str:
    return f"migrate-run {hexadecimal(key)} "


def read_mark(mark: str | None, *, now: float, session: str) -> Holder:
    """Return who bears this mark; what cannot be read (a session of somebody else's making) is left out."""
    if found := _LOCK.match(mark or ""):
        return Holder(found[3], int(found[2]), max(0.0, now - int(found[1])), session)
    if found := _RUN.match(mark or ""):
        return Holder(found[2], int(found[1]), None, session, lost=True)
    return Holder(session=session)


def host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()) or "unknown"


def _mark(beginning: str) -> str:
    room = _LONGEST_MARK - len(beginning)
    host = host_name()
    if len(host) > room:  # both ends: the name of a pod differs from its brothers' at its end
        host = f"{host[: room - 13]}~{host[-12:]}"
    return beginning + host
