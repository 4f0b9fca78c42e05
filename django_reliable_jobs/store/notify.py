"""Wake-ups: after the commit, in a transaction of their own, coalesced (protocol 11).

A NOTIFY inside the caller's transaction takes a lock that serialises everybody's commits, so it is sent afterwards. The
first wake-up goes out at once on the caller's connection (a round trip, no disk). Those that follow within `QUIET` are
gathered and sent by a thread of this process, so that a burst of enqueues costs a burst of nothing. Whatever goes wrong
here costs workers at most one `POLL`, so nothing is raised.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable

from django.db import connections, transaction

from django_reliable_jobs import conf
from django_reliable_jobs.store.statements import run_positional
from django_reliable_jobs.values.log_limit import LogLimit

logger = logging.getLogger("django_reliable_jobs.notify")

CHANNEL = "django_reliable_jobs"
QUIET = 0.005  # seconds
IDLE = 2.0  # seconds without a wake-up after which the thread closes its connection and ends


#: Look everywhere: the sender does not know which queue has work.
WORK_ANYWHERE = "work"


def work_payload(queue: str, priority: int) -> str:
    return f"work {queue} {priority}"


def cancel_payload(worker: object) -> str:
    return f"cancel {worker}"


class Notifier:
    """One for each process and alias."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._lock = threading.Lock()
        self._more = threading.Condition(self._lock)
        self._pending: set[str] = set()
        self._last = 0.0
        self._thread: threading.Thread | None = None

    def send(self, payloads: Iterable[str]) -> None:
        if not conf.current().listen:
            return  # switched off since: the test kit
        with self._lock:
            now = time.monotonic()
            if self._thread is not None or now - self._last < QUIET:
                self._pending.update(payloads)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="reliable-jobs-notify", daemon=True)
                    self._thread.start()
                self._more.notify()
                return
            self._last = now
        _notify(self.alias, list(payloads))

    def _run(self) -> None:
        try:
            while True:
                with self._lock:
                    if not self._pending and not self._more.wait_for(lambda: self._pending, timeout=IDLE):
                        self._thread = None
                        return
                    pause = self._last + QUIET - time.monotonic()
                if pause > 0:
                    time.sleep(pause)
                with self._lock:
                    payloads, self._pending = list(self._pending), set()
                    self._last = time.monotonic()
                _notify(self.alias, payloads, prepare=True)
        finally:
            connections[self.alias].close()


def _notify(alias: str, payloads: list[str], *, prepare: bool = False) -> None:
    """`prepare`: the connection is the thread's own."""
    try:
        run_positional(alias, "notify", {"payloads": payloads}, prepare=prepare)
    except Exception as error:  # noqa: BLE001 - the job is committed; its worker finds it with its next poll
        if _limit.due(alias):
            logger.warning("could not notify workers on %r, they will poll: %s", alias, error)
        connections[alias].close_if_unusable_or_obsolete()


_notifiers: dict[str, Notifier] = {}
_limit = LogLimit()


def _forget() -> None:
    """A forked child has neither the thread nor the right to its connection."""
    _notifiers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def wake(alias: str, payloads: Iterable[str]) -> None:
    """Notify workers once the caller's transaction has committed; at once without one; never after a rollback."""
    if not conf.current().listen:
        return
    chosen = set(payloads)
    if not chosen:
        return
    notifier = _notifiers.get(alias) or _notifiers.setdefault(alias, Notifier(alias))
    connection = connections[alias]
    if connection.in_atomic_block:
        transaction.on_commit(lambda: notifier.send(chosen), using=alias, robust=True)
    elif connection.get_autocommit():
        notifier.send(chosen)
    # With autocommit off the caller commits by hand, at a time that nobody tells us: workers find the job by polling.
