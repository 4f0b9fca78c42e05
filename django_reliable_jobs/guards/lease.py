"""A guard's lease while a function runs under it: how it begins and ends. `renewal` keeps it in between."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs import conf
from django_reliable_jobs.errors import GuardUnavailable, LeaseLost
from django_reliable_jobs.guards.guard import Guard, complaints
from django_reliable_jobs.guards.periods import end_of_period
from django_reliable_jobs.schedules import Timetable
from django_reliable_jobs.values.elapsed import elapsed


class GuardLease:
    """What a function that runs under a guard may know of its lease."""

    def __init__(self, key: str, token: int) -> None:
        #: The guard's key, as it was given.
        self.key = key
        #: Greater than the token of every earlier lease and job: for `fencing.fence`, or to be sent along with a write.
        self.token = token
        #: Set when the lease is lost; for functions that wait or loop.
        self.lost = threading.Event()
        #: The function has been told of the loss; it needs no exception from outside.
        self.told = False

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost."""
        if self.lost.is_set():
            self.told = True
            raise self.loss()

    def loss(self) -> LeaseLost:
        return LeaseLost(f"guard {self.key!r}: the lease with token {self.token} is lost")


current: ContextVar[GuardLease | None] = ContextVar("django_reliable_jobs_guard_lease", default=None)


def current_lease() -> GuardLease | None:
    """The lease of the `run_exclusive` or `run_once` that this code runs under, the innermost one; None outside."""
    return current.get()


@dataclass(frozen=True, slots=True)
class Terms:
    """What a run asks for: a lease of `ttl` seconds, and what becomes of the key when the function has succeeded."""

    guard: Guard
    verb: str
    ttl: float
    #: The key stays claimed after a success, for good or until the period ends.
    once: bool = False
    period: Timetable | None = None


class GuardedRun:
    """The lease from its claim to its end, for whoever runs the function. Times are those of `elapsed()`."""

    def __init__(self, terms: Terms, token: int, asked: float) -> None:
        self.terms = terms
        self.lease = GuardLease(terms.guard.key, token)
        #: Until when the lease is certainly ours: it lasts longer than this by the time that the claim was under way.
        self.safe_until = asked + terms.ttl
        self._done_until: float | None = None

    @classmethod
    def begin(cls, terms: Terms) -> GuardedRun | None:
        """Claim the key; None if somebody has it. Raises GuardUnavailable, and RuntimeError inside `atomic()`."""
        refuse_in_transaction(terms.verb)
        asked = elapsed()
        try:
            # In a `TestCase` the lease is in the test's transaction, where no renewal could see it: so it has no end.
            token = terms.guard.acquire(None if terms.guard.joins else terms.ttl)
        except GuardUnavailable as error:
            complaints.add(terms.guard, error)
            raise
        if token is None:
            return None
        guarded_run = cls(terms, token, asked)
        if terms.period is not None:
            try:
                # Under the lease: a stall between this and the claim does not matter then.
                guarded_run._done_until = end_of_period(terms.period, terms.guard.now())
            except BaseException:
                guarded_run.give_back()
                raise
        return guarded_run

    def renew(self) -> bool:
        """In the renewal's thread. False: it is lost. Raises GuardUnavailable: perhaps next time."""
        asked = elapsed()
        if not self.terms.guard.renew(self.lease.token, self.terms.ttl, timeout=self.safe_until - asked):
            return False
        self.safe_until = asked + self.terms.ttl
        return True

    def give_back(self) -> None:
        """The function failed: free the key. If the store is out of reach the lease expires by itself."""
        if self.lease.lost.is_set():
            return
        try:
            self.terms.guard.release(self.lease.token)
        except GuardUnavailable as error:
            complaints.add(self.terms.guard, error)

    def finish(self) -> bool:
        """The function succeeded: free the key, or have it stay claimed. False: the lease was lost before that."""
        if self.terms.once:
            return self._record_done()
        try:
            return self.terms.guard.release(self.lease.token)
        except GuardUnavailable as error:
            complaints.add(self.terms.guard, error)
            return True

    def _record_done(self) -> bool:
        """Tries while the lease certainly lasts, then raises GuardUnavailable: the function may be run again."""
        while True:
            try:
                return self.terms.guard.finish(self.lease.token, self._done_until)
            except GuardUnavailable as error:
                complaints.add(self.terms.guard, error)
                left = self.safe_until - elapsed()
                if left <= 0:
                    raise
                time.sleep(min(left, conf.current().guards["TIMEOUT"] / 4))


def refuse_in_transaction(verb: str) -> None:
    """Raise RuntimeError if what the function writes would not be committed when it ends."""
    for connection in connections.all(initialized_only=True):
        if _in_own_transaction(connection):
            raise RuntimeError(
                f"{verb}() was called in a transaction on {connection.alias!r}: its key would be free for others before"
                " what the function writes is committed. Call it outside of atomic() (and of ATOMIC_REQUESTS, with"
                " transaction.non_atomic_requests), and open transactions in the function."
            )


def _in_own_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether the caller has opened one; those that `TestCase` puts around each test do not count."""
    if connection.in_atomic_block:
        return any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)
    return connection.connection is not None and not connection.autocommit
