"""The exchange without PostgreSQL's one statement: the readable reference that the tests compare the real one with.

Claim first, then settle, in one transaction, as the one statement does: what an offer puts back is not claimed again in
the same round. `select_for_update(skip_locked=True, no_key=True)` decides who gets a row; the conditions stand in the
same query, so the database checks them on the version that it locks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import BigIntegerField, Case, DateTimeField, F, Func, Q, TextField, Value, When
from django.db.models.fields.json import JSONField
from django.db.models.functions import Coalesce, Now, NullIf
from django.db.models.lookups import IsNull
from django.utils import timezone

from django_reliable_jobs.models import Job, JobAttempt, JobStatus, QueueState
from django_reliable_jobs.store.exchange import ClaimRequest, Exchanged, Settlement, Source, sort_leases
from django_reliable_jobs.store.tokens import fencing_tokens
from django_reliable_jobs.values.lease import Lease
from django_reliable_jobs.values.outcome import Outcome
from django_reliable_jobs.values.states import CLAIMABLE, FINISHED, REASON_INFRASTRUCTURE, REASON_REQUESTED


class Clock(Func):
    """The database's clock, also while a statement is under way (protocol 1)."""

    function = "CLOCK_TIMESTAMP"
    output_field = DateTimeField()


def exchange(alias: str, worker: UUID, lease: float, offers: Sequence[Settlement], wish: ClaimRequest) -> Exchanged:
    """The same contract as `store.exchange.exchange`."""
    with transaction.atomic(using=alias):
        chosen, seen = _lock_candidates(alias, wish)
        fitting = _fitting(chosen, wish)
        claimed = _claim(alias, worker, lease, _take(fitting, wish))
        settled = {offer.lease.key for offer in offers if _settle(alias, worker, offer)}
    return Exchanged(settled, sort_leases(claimed), seen, len(fitting) < len(chosen))


def _lock_candidates(alias: str, wish: ClaimRequest) -> tuple[list[Job], list[int]]:
    """The first jobs of all pairs in order, locked, and how many of each were looked at.

    A capped queue is asked for its share alone, and looked at beyond its cap: a locked row must not use that up.
    """
    wanted = wish.free + wish.ahead
    paused = set(QueueState.objects.using(alias).filter(paused=True).values_list("queue", flat=True))
    widest = max(map(wish.window_of, wish.pairs), default=0)
    found: list[tuple[int, datetime, int, str, int | None]] = []
    seen = dict.fromkeys(wish.pairs, 0)
    for queue in dict.fromkeys(pair.queue for pair in wish.pairs if pair.queue not in paused):
        pairs = [pair for pair in wish.pairs if pair.queue == queue]
        of_queue = [(row, pair) for pair in pairs for row in _due(alias, pair, wish)]
        of_queue.sort(key=lambda row: row[0])
        cap = pairs[0].cap
        share = "" if cap is None else queue
        for row, pair in of_queue[: None if cap is None else cap + widest - wanted]:
            found.append((*row, share, cap))
            seen[pair] += 1
    locked: list[Job] = []
    for share, cap in {row[3:] for row in found}:
        jobs = Job.objects.using(alias).filter(
            pk__in=[row[2] for row in found if row[3] == share], status__in=CLAIMABLE, run_at__lte=Now()
        )
        jobs = jobs.annotate(expires_in=F("expires_at") - Now(), payload_bytes=_stored("args") + _stored("kwargs"))
        in_order = jobs.order_by("-priority", "run_at", "id").select_for_update(skip_locked=True, no_key=True)
        locked += in_order[: wanted if cap is None else min(cap, wanted)]
    locked.sort(key=lambda job: (-job.priority, job.run_at, job.pk))
    return locked[:wanted], [seen[pair] for pair in wish.pairs]


def _due(alias: str, pair: Source, wish: ClaimRequest) -> list[tuple[int, datetime, int]]:
    """The order, ending in the id, of the pair's first jobs."""
    begun = Q(first_started_at__isnull=False) | Q(attempts__gt=0)
    in_time = Q(expires_at__isnull=True) | Q(expires_at__gt=Now()) | begun
    jobs = Job.objects.using(alias).filter(
        in_time,
        Q(run_at__gt=pair.since) | Q(run_at=pair.since, pk__gte=pair.job_id),
        status__in=CLAIMABLE,
        queue=pair.queue,
        priority=pair.priority,
        run_at__lte=Now(),
    )
    known = jobs.exclude(name__in=wish.unknown).order_by("run_at", "id").values_list("run_at", "id")
    return [(-pair.priority, *row) for row in known[: wish.window_of(pair)]]


def _stored(column: str) -> Case:
    """What the column takes in the table, about; compressed ones count tenfold."""
    size = Func(F(column), function="pg_column_size", output_field=BigIntegerField())
    compression = Func(F(column), function="pg_column_compression", output_field=TextField())
    return Case(When(IsNull(compression, True), then=size), default=size * 10)


def _fitting(jobs: Sequence[Job], wish: ClaimRequest) -> list[Job]:
    """The first of them whose payloads are small enough together, and one for a free slot in any case."""
    total = 0
    fitting: list[Job] = []
    for job in jobs:
        total += job.payload_bytes  # type: ignore[attr-defined]
        if total > wish.payload_bytes and (fitting or not wish.free):
            break
        fitting.append(job)
    return fitting


def _take(jobs: Sequence[Job], wish: ClaimRequest) -> list[Job]:
    """The first `free` ones, then ahead of free slots up to the first that must not be (protocol 8)."""
    taken = list(jobs[: wish.free])
    for job in jobs[wish.free :]:
        if job.losses or (job.max_attempts is not None and job.max_attempts - job.attempts < 2):
            break
        taken.append(job)
    return taken


def _claim(alias: str, worker: UUID, lease: float, jobs: Sequence[Job]) -> list[Lease]:
    leases = []
    for job, token in zip(jobs, fencing_tokens(alias, len(jobs)), strict=True):
        Job.objects.using(alias).filter(pk=job.pk).update(
            status=JobStatus.RUNNING,
            reason="",
            locked_by=worker,
            locked_until=Clock() + timedelta(seconds=lease),
            started_at=Now(),
            first_started_at=Coalesce("first_started_at", Now()),
            finished_at=None,
            attempts=F("attempts") + 1,
            fencing_token=token,
            unique_key=None if job.unique_until_start else F("unique_key"),
            progress=None,
        )
        expires_in: timedelta | None = job.expires_in  # type: ignore[attr-defined]
        leases.append(
            Lease(
                job.pk,
                token,
                job.name,
                job.queue,
                job.priority,
                json.dumps(job.args),
                json.dumps(job.kwargs),
                job.attempts + 1,
                job.max_attempts,
                job.losses,
                job.timeout,
                job.idempotency_key,
                job.scheduled_for,
                job.run_at if timezone.is_aware(job.run_at) else timezone.make_aware(job.run_at),
                None if expires_in is None or job.first_started_at or job.attempts else expires_in.total_seconds(),
                job.infrastructure_failures,
            )
        )
    return leases


def _settle(alias: str, worker: UUID, offer: Settlement) -> bool:
    lease, outcome, progress = offer
    jobs = Job.objects.using(alias)
    owned = jobs.filter(pk=lease.job_id, fencing_token=lease.token, status=JobStatus.RUNNING, locked_by=worker)
    job = owned.select_for_update(skip_locked=True, no_key=True).first()
    if job is None:
        return False
    cancelled = job.cancel_requested_at is not None and outcome.status != JobStatus.DONE
    status = JobStatus.CANCELLED if cancelled else outcome.status
    reason = REASON_REQUESTED if cancelled else outcome.reason
    finished = status in FINISHED
    job_progress = job.progress if progress is None else json.loads(progress)
    jobs.filter(pk=job.pk).update(
        status=status,
        reason=reason,
        run_at=F("run_at") if outcome.delay is None else Clock() + timedelta(seconds=outcome.delay),
        attempts=F("attempts") - int(outcome.give_back),
        first_started_at=NullIf(F("first_started_at"), F("started_at")) if outcome.unbegun else F("first_started_at"),
        unknown_since=None,
        infrastructure_failures=(
            job.infrastructure_failures + 1
            if outcome.reason == REASON_INFRASTRUCTURE
            else 0
            if outcome.status == JobStatus.DONE or _snoozed(outcome)
            else job.infrastructure_failures
        ),
        result=None if outcome.result is None else Value(json.loads(outcome.result), JSONField()),
        progress=None if job_progress is None else Value(job_progress, JSONField()),
        locked_by=F("locked_by") if finished else None,
        locked_until=None,
        finished_at=Now() if finished else None,
    )
    if outcome.error is not None:
        JobAttempt.objects.using(alias).create(
            job_id=job.pk,
            fencing_token=lease.token,
            attempt=lease.attempt,
            status=status,
            reason=reason,
            worker=worker,
            started_at=job.started_at,
            finished_at=Clock(),
            error_kind=outcome.error.kind,
            error_message=outcome.error.message,
            traceback=outcome.error.traceback,
        )
    return True


def _snoozed(outcome: Outcome) -> bool:
    return outcome.status == JobStatus.QUEUED and outcome.delay is not None and not outcome.unbegun
