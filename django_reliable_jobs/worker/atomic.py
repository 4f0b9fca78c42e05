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
from django_reliable_jobs.attempt import Attempt
from django_reliable_jobs.context import JobContext, invocation
from django_reliable_jobs.definition import JobDefinition
from django_reliable_jobs.errors import LeaseLost, StopHandler
from django_reliable_jobs.outcome import Outcome
from django_reliable_jobs.returned import refuse_awaitable, refuse_unrun
from django_reliable_jobs.store.exchange import Offer
from django_reliable_jobs.store.settle import bound_idle, settle
from django_reliable_jobs.worker import executor

logger = logging.getLogger("django_reliable_jobs.worker")


def execute(
    attempt: Attempt, definition: JobDefinition, alias: str, worker: UUID, context: JobContext
) -> tuple[Outcome, bool]:
    """The outcome, and whether it is in the database already."""
    lease = attempt.lease
    committed: list[Outcome] = []
    try:
        args, kwargs = payload.loads_call(lease.args, lease.kwargs)
        with transaction.atomic(using=alias, durable=True):
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
            value = variables.run(handler)
            refuse_awaitable(value, "an atomic job runs in one thread and transaction, where nothing can be awaited.")
            refuse_unrun(value)
            outcome.append(executor.outcome_of_value(lease, definition, value))
            with connections[alias].cursor() as cursor:
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            if not settle(alias, worker, Offer(lease, outcome[0], attempt.take_progress())):
                raise LeaseLost(f"job {lease.job_id}: another worker owns it now")
    except BaseException as error:
        if not committed:
            return executor.outcome_of_error(attempt, definition, error), False
        name, status = f"{lease.name} #{lease.job_id}", committed[0].status
        if isinstance(error, StopHandler):
            logger.warning("%s is %s; it was told to stop in the callbacks after its commit", name, status)
        else:
            kept = executor.record(lease, definition, error).traceback if definition.redact else ""
            text = "%s is %s; a callback after its commit failed%s"
            logger.error(text, name, status, kept and f"\n{kept}", exc_info=None if kept else error)
    return committed[0], True
