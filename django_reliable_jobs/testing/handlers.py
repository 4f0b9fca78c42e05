"""Runs one claimed job in the caller's thread, on its connection and in its transaction.

Not the worker's runner, which owns its thread and its connections and closes them; nor the worker's atomic jobs, which are
durable and bound the transaction's idle time. What decides the outcome is the worker's own executor.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import connections, transaction
from psycopg.pq import TransactionStatus

from django_reliable_jobs import payload
from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.errors import LeaseLost
from django_reliable_jobs.models import Job
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.running.context import JobContext, invocation
from django_reliable_jobs.running.returned import (
    has_to_be_awaited,
    refuse_awaitable,
    refuse_unrun,
    to_the_end,
)
from django_reliable_jobs.store.exchange import Settlement
from django_reliable_jobs.store.settle_atomic import settle
from django_reliable_jobs.testing.callbacks import run_callbacks
from django_reliable_jobs.values.lease import Lease
from django_reliable_jobs.values.outcome import Outcome
from django_reliable_jobs.values.states import JobStatus
from django_reliable_jobs.worker.handlers import executor

logger = logging.getLogger("django_reliable_jobs.testing")


@dataclass(frozen=True, slots=True)
class JobRun:
    """One attempt that `run_jobs` ran. `status` and `reason` are what it came to, `error` what the handler raised (a `Retry` or
    `Snooze` too), `attempt` its number."""

    job_id: int
    name: str
    attempt: int
    status: JobStatus
    reason: str
    error: BaseException | None
    database: str

    @property
    def job(self) -> Job:
        """The row as it is now; one query."""
        return Job.objects.using(self.database).get(pk=self.job_id)


class Attempted:
    """One attempt: `outcome`, whether it is `settled` in the database, the `error`, and the last `progress` (JSON text)."""

    def __init__(self, lease: Lease, definition: JobDefinition, alias: str, worker: UUID) -> None:
        self.lease = lease
        self.error: BaseException | None = None
        self.settled = False
        self._definition = definition
        self._alias = alias
        self._worker = worker
        self._attempt = attempt = Attempt(lease)
        attempt.begin()
        attempt.start()
        if definition.isolation == "process":
            logger.info(
                "%s #%s asks for a process; the test kit runs it in the test's thread", lease.name, lease.job_id
            )
        self.outcome = self._run_atomic() if definition.atomic else executor.execute(attempt, definition, self._call)
        if self.error is None and self.outcome.error is not None:
            self.error = self.outcome.error.exception  # its arguments could not be read

    def settlement(self, outcome: Outcome | None = None) -> Settlement:
        """To hand in; `outcome` instead of its own."""
        return Settlement(self.lease, outcome or self.outcome, self._attempt.take_progress())

    def as_run(self) -> JobRun:
        lease, outcome = self.lease, self.outcome
        return JobRun(lease.job_id, lease.name, lease.attempt, outcome.status, outcome.reason, self.error, self._alias)

    def _handler(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        context = JobContext(self._attempt, self._alias)
        variables, handler = invocation(self._definition, context, args, kwargs)
        value = variables.run(handler)
        if self._definition.atomic:
            refuse_awaitable(value, "an atomic job runs in one thread and transaction, where nothing can be awaited.")
        elif has_to_be_awaited(value):
            # Its ORM calls come back to this thread, and so to the test's connection.
            value = variables.run(async_to_sync(to_the_end), value)
        return value

    def _call(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        connection = connections[self._alias]
        waiting = len(connection.run_on_commit)
        savepoint = transaction.savepoint(using=self._alias) if connection.in_atomic_block else None
        try:
            value = self._handler(args, kwargs)
            run_callbacks(self._alias)
        except BaseException as error:
            self.error = error
            if savepoint is not None and _is_broken(connection):
                # PostgreSQL takes nothing more in this transaction: all that the handler wrote goes.
                connection.needs_rollback = False
                transaction.savepoint_rollback(savepoint, using=self._alias)
                del connection.run_on_commit[waiting:]
            elif savepoint is not None:
                transaction.savepoint_commit(savepoint, using=self._alias)
            raise
        if savepoint is not None:
            transaction.savepoint_commit(savepoint, using=self._alias)
        return value

    def _run_atomic(self) -> Outcome:
        connection = connections[self._alias]
        outcome: Outcome | None = None
        try:
            args, kwargs = payload.loads_call(self.lease.args, self.lease.kwargs)
            with transaction.atomic(using=self._alias):
                value = self._handler(args, kwargs)
                refuse_unrun(value)
                decided = executor.outcome_of_value(self.lease, self._definition, value)
                connection.check_constraints()
                if not settle(self._alias, self._worker, self.settlement(decided)):
                    raise LeaseLost(f"job {self.lease.job_id}: its row was changed while its handler ran")
                outcome = decided
        except BaseException as error:  # noqa: BLE001 - the attempt fails, the test goes on
            self.error = error
            if outcome is None:
                return executor.outcome_of_error(self._attempt, self._definition, error)
        self.settled = True
        return outcome


def _is_broken(connection: Any) -> bool:
    status = connection.connection.info.transaction_status
    return bool(connection.needs_rollback or status == TransactionStatus.INERROR)
