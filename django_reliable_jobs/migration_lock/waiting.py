"""Waiting for the lock: short looks at it with pauses between them, and a word now and then."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from django.db import Error

from django_reliable_jobs.errors import MigrationLockTimeout
from django_reliable_jobs.migration_lock.databases.backend import LockBackend, NoAnswer
from django_reliable_jobs.migration_lock.identity import Holder

#: Seconds between two looks: the first pause, and the longest.
PAUSE = (0.05, 0.5)
#: Seconds between two reports of one wait.
REPORT_EVERY = 10.0
#: Seconds for which a waiter whose connection was cut tries to connect again.
RECONNECT = 60.0
#: Seconds after which a look that is not answered is given up. A pooler without a free session lets one wait.
_LOOK = 15.0

Report = Callable[[str], None]


def acquire(lock: LockBackend, timeout: float, report: Report) -> None:
    """Wait for the lock; `timeout` in seconds, 0 for ever.

    Raises `MigrationLockTimeout`, or the database's error when it stays out of reach.
    """
    wait = _Wait(lock, timeout, report)
    while not wait.look():
        wait.pause()
    wait.done()


class _Wait:
    def __init__(self, lock: LockBackend, timeout: float, report: Report) -> None:
        self.lock = lock
        self.timeout = timeout
        self.report = report
        self.started = time.monotonic()
        self.next_report = self.started
        self.next_pause = PAUSE[0]
        self.holder: Holder | None = None
        self.connected = False
        self.cut_at: float | None = None  # since when there are nothing but errors

    def look(self) -> bool:
        try:
            if not self.connected:
                self.lock.open(self._patience())
                self.connected = True
            got = self.lock.try_acquire(self._patience())
            if not got:
                self.holder = self.lock.holder() or self.holder
        except NoAnswer as error:
            self._disconnect(f"Waiting for the migration lock: {error}. A pooler may have no free session.")
            return False
        except Error as error:
            self._cut(error)
            return False
        self.cut_at = None
        if not got and self.holder is not None:
            self._say(f"Waiting for the migration lock, {self.holder}.")
        return got

    def pause(self) -> None:
        if self.left() <= 0:
            raise MigrationLockTimeout(
                f"Gave up after {self.timeout:g} s of waiting for {self.lock.name or 'the migration lock'},"
                f" {self.holder or 'whose holder is not known'}. Nothing was changed."
            )
        time.sleep(min(self.next_pause * random.uniform(0.7, 1), max(0.0, self.left())))
        self.next_pause = min(self.next_pause * 2, PAUSE[1])

    def done(self) -> None:
        if self.next_report > self.started:  # it was said that we wait
            self.report(f"Got the migration lock after {time.monotonic() - self.started:.0f} s.")

    def left(self) -> float:
        return self.started + self.timeout - time.monotonic() if self.timeout else float("inf")

    def _patience(self) -> float:
        """A second more than there is left: the pause before has kept to it, and the answer is about to come."""
        return min(_LOOK, max(0.0, self.left()) + 1)

    def _say(self, line: str) -> None:
        if time.monotonic() >= self.next_report:
            self.report(line)
            self.next_report = time.monotonic() + REPORT_EVERY

    def _cut(self, error: Error) -> None:
        now = time.monotonic()
        self.cut_at = self.cut_at or now
        if self.holder is None or now - self.cut_at > RECONNECT:  # out of reach from the start, or for too long
            raise error
        self._disconnect(f"Lost the connection that waits for the migration lock, connecting again: {error}".rstrip())

    def _disconnect(self, why: str) -> None:
        self.connected = False
        self.lock.close()
        self._say(why)
