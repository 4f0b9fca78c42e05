"""The lock on SQLite: an exclusive lock on a file beside the database, which the system frees when its process ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.db import DatabaseError

from django_reliable_jobs.migration_lock.identity import Holder, lock_mark, read_mark

SUFFIX = ".migrate-lock"


class SQLiteLock:
    """`database`: NAME in DATABASES. One that lives in memory needs no lock: no other process sees it."""

    def __init__(self, database: str | Path) -> None:
        path = path_of(database)
        self._path = path and path.with_name(path.name + SUFFIX)
        self._file: int | None = None
        self.name = f"the migration lock {self._path or 'of a database in memory'}"

    def open(self, within: float) -> None:
        if self._path is not None:
            # The file stays where it is: a lock on a file that another process removes would keep nobody out.
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def try_acquire(self, within: float) -> bool:
        if self._file is None:
            return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._write(lock_mark(int(time.time())))
        return True

    def holder(self) -> Holder | None:
        if self._file is None:
            return None
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            mark = os.pread(self._file, 100, 0).decode(errors="replace")
            return read_mark(mark, now=time.time(), session="")
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return None

    def check(self, within: float) -> None:
        if self._path is None or self._file is None:
            return
        try:
            same = os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            same = False
        if not same:
            raise DatabaseError(f"{self._path} was removed")

    def release(self) -> bool:
        if self._file is not None:
            self._write("")
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return True

    def interrupt(self) -> None:
        pass  # no call waits

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, mark: str) -> None:
        assert self._file is not None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, mark.encode(), 0)


def path_of(database: str | Path) -> Path | None:
    """Return the file that Django's NAME (a path or a URI) leads to; None for a database in memory."""
    text = os.fspath(database)
    if text.startswith("file:"):
        address = urlsplit(text)
        text = "" if "mode=memory" in address.query else unquote(address.path)
    return None if text in ("", ":memory:") else Path(text).absolute()
