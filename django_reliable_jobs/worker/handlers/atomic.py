"""Atomic jobs: the handler, its writes and the DONE mark are one transaction (design, section 3).

The settle is the last statement before the commit and verifies (id, token, RUNNING): a stale run changes no row
there, and everything it wrote is rolled back. A run that dies anywhere before the commit leaves nothing. If the
answer to the commit is lost, nobody knows which it was: the attempt is offered as failed, and the exchange finds
either a RUNNING row (it was rolled back) or one that is recorded with the same token (it was committed; the offer is
dropped).
"""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import connections, transaction

from django_reliable_jobs import conf, payload
from django_reliable_jobs.connections.own_connection import read_committed
from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.errors import LeaseLost, StopHandler
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.running.context import JobContext, invocation
from django_reliable_jobs.running.returned import refuse_awaitable, refuse_unrun
from django_reliable_jobs.store.exchange import Settlement
from django_reliable_jobs.store.settle_atomic import bound_idle, settle
from django_reliable_jobs.values.outcome import Outcome
from django_reliable_jobs.worker import log
from django_reliable_jobs.worker.handlers import executor

logger = logging.getLogger("django_reliable_jobs.worker")


def execute(
    attempt: Attempt,
    definition: JobDefinition,
    alias: str,
    worker: UUID,
    context: JobContext,
    judge: executor.Judge = executor.never,
) -> tuple[Outcome, bool]:
    """The outcome, and whether it is in the database already."""
    lease = attempt.lease
    committed: list[Outcome] = []
    begun = False
    try:
        args, kwargs = payload.loads_call(lease.args, lease.kwargs)
        with read_committed(connections[alias]), transaction.atomic(using=alias, durable=True):
            attempt.check()
            if lease.timeout is not None:
                bound_idle(alias, lease.timeout + conf.current().grace)
            outcome: list[Outcome] = []

            def note_the_commit() -> None:
                committed.extend(outcome)
                attempt.safe_until = float("inf")  # settled: no lease is left to lose, the callbacks may go on

            # The first callback: it tells a commit that went well from an error in a later callback.
            transaction.on_commit(note_the_commit, using=alias)
            variables, handler = invocation(definition, context, args, kwargs)
            begun = True
            value = variables.run(handler)
            refuse_awaitable(value, "an atomic job runs in one thread and transaction, where nothing can be awaited.")
            refuse_unrun(value)
            outcome.append(executor.outcome_of_value(lease, definition, value))
            with connections[alias].cursor() as cursor:
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            idle = min(conf.current().lease / 2, (lease.timeout or float("inf")) + conf.current().grace)
            if not settle(alias, worker, Settlement(lease, outcome[0], attempt.take_progress()), idle):
                raise LeaseLost(f"job {lease.job_id}: another worker owns it now")
    except BaseException as error:
        if not begun and attempt.stop_kind is None and (why := judge(error)):
            log.unbegun(attempt, f"{why}: {error}")
            return executor.unbegun(), False
        if not committed:
            return executor.outcome_of_error(attempt, definition, error, judge), False
        name, status = f"{lease.name} #{lease.job_id}", committed[0].status
        if isinstance(error, StopHandler):
            text = "%s is %s; it was told to stop in the callbacks after its commit"
            logger.warning(text, name, status, extra=lease.log_fields)
        else:
            text = "%s is %s; a callback after its commit failed"
            kept = executor.record(lease, definition, error)
            logger.error(text, name, status, exc_info=log.exc_info(kept), extra=lease.log_fields)
    return committed[0], True
