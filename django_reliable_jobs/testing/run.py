"""`run_jobs`: what is due is claimed, run and settled here, until nothing is due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from django.test import override_settings
from django.test.utils import _TestState
from psycopg.pq import TransactionStatus

from django_reliable_jobs import conf
from django_reliable_jobs.connections.own_connection import goes_through_a_pooler
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.errors import ReliableJobsError, Retry, Snooze, UnknownJob
from django_reliable_jobs.store.exchange import ClaimRequest, Settlement, Source, exchange
from django_reliable_jobs.store.queues_with_work import discover
from django_reliable_jobs.testing.callbacks import run_callbacks
from django_reliable_jobs.testing.clock import Clock
from django_reliable_jobs.testing.handlers import Attempted, JobRun
from django_reliable_jobs.values.durations import seconds
from django_reliable_jobs.values.lease import Lease
from django_reliable_jobs.values.outcome import unknown_job
from django_reliable_jobs.values.states import JobStatus

#: What a session's transactions are bound by; the store sets it for a worker's.
BOUNDS = ("idle_in_transaction_session_timeout", "lock_timeout")
LEASE = 365 * 86_400.0  # seconds: nobody reaps a job while somebody looks at its handler in a debugger

NEXT = """
    SELECT extract(epoch FROM min(run_at) - statement_timestamp())::float8
      FROM django_reliable_jobs_job
     WHERE status IN ('QUEUED', 'FAILED') AND run_at > statement_timestamp()
"""


class TooManyJobs(ReliableJobsError):
    """`run_jobs` has run `limit` jobs, and more are due."""


def run_jobs(
    advance: float | timedelta = 0, *, limit: int = 10_000, raises: bool = True, database: str | None = None
) -> list[JobRun]:
    """Run what is due, in this thread, on this connection and in its transaction; each attempt in the order it ran.

    Jobs that handlers enqueue are run too. Callbacks of `on_commit` run as if the test had committed: before the first job
    and after each.

    - `advance`: seconds or `timedelta` by which the queue's clock is moved ahead, from one due job to the next, so that
      retries, snoozes and delayed jobs run at their times. It stays there until the test's transaction is rolled back, so
      it needs a `TestCase` (or pytest-django's `db`): `RuntimeError` otherwise. Python's own clock does not move.
    - `limit`: raises `TooManyJobs` when that many have run and another one is due.
    - `raises`: what a handler raised is raised again, with its traceback, once its outcome is settled; not a `Retry` or
      `Snooze`. A name that no job has raises `UnknownJob`. False: both are in what is returned.
    - `database`: the alias, by default `DATABASE`.

    Raises `RuntimeError` outside of a test run. Deadlines are not enforced, and `isolation="process"` runs in this thread. In
    a `TestCase` an SQL error takes all back that its handler has written; other errors leave it, as in production.
    """
    _refuse_outside_of_tests()
    alias = database or conf.current().database
    ahead = seconds(advance, "advance")
    clock = Clock(alias)
    kit = _Kit(alias, limit, raises)
    with _without_listen(), _planned_once(alias):
        if not ahead:
            kit.run()
            return kit.runs
        until = clock.ahead() + ahead
        while True:
            kit.run()
            now, pause = clock.ahead(), kit.next_in()
            if now >= until:
                return kit.runs
            clock.move(until if pause is None else min(now + pause, until))


async def arun_jobs(
    advance: float | timedelta = 0, *, limit: int = 10_000, raises: bool = True, database: str | None = None
) -> list[JobRun]:
    """`run_jobs` for async tests."""
    return await sync_to_async(run_jobs)(advance, limit=limit, raises=raises, database=database)


def _refuse_outside_of_tests() -> None:
    """The kit's leases last a year: on a real database a process that is killed would leave its job RUNNING for that long."""
    if not hasattr(_TestState, "saved_data"):
        raise RuntimeError(
            "run_jobs is for tests: neither a test runner nor setup_test_environment() is at work here. To run what is due"
            " use `manage.py jobworker --burst`."
        )


class _Kit:
    def __init__(self, alias: str, limit: int, raises: bool) -> None:
        self.alias = alias
        self.limit = limit
        self.raises = raises
        self.worker = uuid4()
        self.runs: list[JobRun] = []
        self.unknown: list[str] = []
        self._offers: list[Settlement] = []
        connections[alias].ensure_connection()
        raw: Any = connections[alias].connection
        self.prepares = getattr(raw, "_pool", None) is None and not goes_through_a_pooler(raw)

    def run(self) -> None:
        """Until nothing is due."""
        run_callbacks(self.alias)
        while (lease := self._claim()) is not None:
            if len(self.runs) >= self.limit:
                self._settle(Settlement(lease, unknown_job()))
                raise TooManyJobs(f"run_jobs has run {self.limit} jobs, and {lease.name} #{lease.job_id} is due still.")
            self._run(lease)

    def next_in(self) -> float | None:
        """Seconds until the next job is due. All are looked at: one that waits but cannot run hides none behind it."""
        with connections[self.alias].cursor() as cursor:
            cursor.execute(NEXT)
            found: float | None = cursor.fetchone()[0]
        return found

    def _claim(self) -> Lease | None:
        with _prepared(self.alias, self.prepares):
            work = discover(self.alias)
        pairs = [Source(one.queue, one.priority, one.since) for one in work if one.due_in <= 0]
        if not pairs and not self._offers:
            return None
        wish = ClaimRequest(free=1, pairs=pairs, unknown=self.unknown)
        offers, self._offers = self._offers, []
        with _prepared(self.alias, self.prepares):
            leases = exchange(self.alias, self.worker, LEASE, offers, wish).leases
        if leases or not offers:
            return leases[0] if leases else None
        return self._claim()  # what was settled may be due again

    def _settle(self, offer: Settlement) -> None:
        exchange(self.alias, self.worker, LEASE, [offer], ClaimRequest())

    def _run(self, lease: Lease) -> None:
        try:
            definition = registry.find(lease.name)
        except UnknownJob as error:
            self.unknown.append(lease.name)
            self._settle(Settlement(lease, unknown_job()))
            if self.raises:
                raise
            self.runs.append(
                JobRun(lease.job_id, lease.name, lease.attempt, JobStatus.QUEUED, "unknown job", error, self.alias)
            )
            return
        with _bounds_put_back(self.alias):
            attempted = Attempted(lease, definition, self.alias, self.worker)
        self.runs.append(attempted.as_run())
        raised = attempted.error
        wanted = self.raises or isinstance(raised, KeyboardInterrupt)
        if raised is not None and wanted and not isinstance(raised, (Retry, Snooze)):
            if not attempted.settled:
                self._settle(attempted.settlement())
            raise raised
        if not attempted.settled:
            self._offers.append(attempted.settlement())
        if definition.atomic:
            run_callbacks(self.alias)


@contextmanager
def _without_listen() -> Iterator[None]:
    """No NOTIFY, and no thread for it: nobody listens to a test."""
    mine = getattr(settings, "RELIABLE_JOBS", {})
    with override_settings(RELIABLE_JOBS={**mine, "LISTEN": False}):
        yield


#: As on a worker's connection: compiling a claim, or planning it anew, takes longer than the claim.
PLANNING = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off"}


@contextmanager
def _planned_once(alias: str) -> Iterator[None]:
    """How statements are planned on this connection; put back afterwards unless the connection is broken or another one."""
    connection = connections[alias]
    connection.ensure_connection()
    raw = connection.connection
    before = _settings(alias, dict.fromkeys(PLANNING))
    _settings(alias, PLANNING)
    try:
        yield
    finally:
        usable = connection.connection is raw and raw is not None and not connection.needs_rollback
        if usable and raw.info.transaction_status in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
            _settings(alias, before)


def _settings(alias: str, values: Mapping[str, str | None]) -> dict[str, str]:
    """Set them, for the transaction if there is one; None leaves one as it is. What they are then."""
    local = connections[alias].in_atomic_block
    parts = ["current_setting(%s)" if value is None else "set_config(%s, %s, %s)" for value in values.values()]
    params = [one for name, value in values.items() for one in ((name,) if value is None else (name, value, local))]
    with connections[alias].cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(parts)}", params)
        return dict(zip(values, cursor.fetchone(), strict=True))


@contextmanager
def _prepared(alias: str, allowed: bool) -> Iterator[None]:
    """The kit's own statements are prepared; those of handlers are left as they are."""
    raw: Any = connections[alias].connection
    if not allowed or raw is None:
        yield
        return
    before, raw.prepare_threshold = raw.prepare_threshold, 0
    try:
        yield
    finally:
        raw.prepare_threshold = before


@contextmanager
def _bounds_put_back(alias: str) -> Iterator[None]:
    """A job that bounds its transaction bounds the test's, which a breakpoint would then end."""
    connection = connections[alias]
    if not connection.in_atomic_block:
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s), current_setting(%s)", BOUNDS)
        before = cursor.fetchone()
    yield
    with connection.cursor() as cursor:
        params = [BOUNDS[0], before[0], BOUNDS[1], before[1]]
        cursor.execute("SELECT set_config(%s, %s, true), set_config(%s, %s, true)", params)
