"""The one statement against its readable reference: on any table they return the same leases and leave the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_reliable_jobs.models import Job, JobAttempt, JobStatus, QueueState
from django_reliable_jobs.store.exchange import BEGINNING, ClaimRequest, Exchanged, Settlement, Source
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.outcome import ErrorRecord, Outcome
from tests.database.conftest import IMPLEMENTATIONS, light
from tests.support.factories import lease_of
from tests.support.sessions import Session, fetch

pytestmark = pytest.mark.django_db(transaction=True)

WORKER = uuid4()
QUEUES = ("a", "b", "c")
PRIORITIES = (-1, 0, 5)
ERROR = ErrorRecord("E", "m", "t")

# Minutes, so that the two runs, which take milliseconds, see the same rows as due.
minutes = st.sampled_from([-600, -60, -3, -2, -1, 60])
maybe = st.none() | minutes
jobs = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(QUEUES),
        "priority": st.sampled_from(PRIORITIES),
        "run_at": minutes,
        "expires_at": maybe,
        "unknown_since": st.none() | st.just(-30),
        "status": st.sampled_from([*JobStatus, JobStatus.QUEUED, JobStatus.QUEUED, JobStatus.RUNNING]),
        "attempts": st.integers(0, 4),
        "max_attempts": st.none() | st.just(5),
        "losses": st.sampled_from([0, 0, 0, 1, 2]),
        "unique_until_start": st.booleans(),
        "cancel_requested_at": st.none() | st.none() | st.just(-1),
        "progress": st.none() | st.just({"done": 1}),
        "locked": st.sampled_from([False, False, False, True]),  # by somebody else, in an open transaction
    }
)
outcomes = st.sampled_from(
    [
        outcome.DONE, outcome.RELEASED, outcome.done('{"a": [1]}', "x"), outcome.failed(900.0, ERROR, last_attempt=False),
        outcome.dead("d", ERROR), outcome.cancelled("c"), outcome.snoozed(900.0), outcome.unknown_job(900.0),
    ]
)  # fmt: skip
offers = st.lists(
    st.tuples(st.integers(0, 11), outcomes, st.sampled_from([0, 0, 0, 1]), st.none() | st.just('{"done": 2}')),
    max_size=6,
)
since = st.sampled_from([None, None, -61, -2, -1])
pairs = st.lists(
    st.tuples(st.sampled_from(QUEUES), st.sampled_from(PRIORITIES), since, st.integers(0, 11)),
    max_size=6,
    unique_by=lambda pair: pair[:2],
)
wishes = st.fixed_dictionaries(
    {
        "free": st.integers(0, 6),
        "ahead": st.integers(0, 6),
        "spare": st.integers(0, 4),
        "pairs": pairs,
        "caps": st.dictionaries(st.sampled_from(QUEUES), st.integers(1, 3), max_size=2),
        "paused": st.sets(st.sampled_from(QUEUES), max_size=1),
    }
)


@pytest.fixture
def somebody() -> Iterator[Session]:
    with Session() as session:
        yield session


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(jobs, max_size=12), offers, wishes)
def test_both_implementations_do_the_same(
    somebody: Session,
    rows: list[dict[str, Any]],
    offered: list[tuple[int, Outcome, int, str | None]],
    wish: dict[str, Any],
) -> None:
    now = timezone.now()
    made = Job.objects.bulk_create([Job(**_values(row, number, now)) for number, row in enumerate(rows)])
    QueueState.objects.bulk_create([QueueState(queue=queue, paused=True, changed_at=now) for queue in wish["paused"]])
    held = [job.pk for job, row in zip(made, rows, strict=True) if row["locked"]]
    try:
        somebody.begin()
        somebody.sql("SELECT 1 FROM django_reliable_jobs_job WHERE id = ANY(%s) FOR UPDATE", [held])
        one, other = (_run(function, made, offered, wish, now) for function in IMPLEMENTATIONS.values())
        # The small statement, for one pair; its rule has no window, so that of the reference is wide.
        alone = wish | {"ahead": 0, "spare": 0, "pairs": wish["pairs"][:1], "caps": {}}
        small = _run(light, made, [], alone, now)
        reference = _run(IMPLEMENTATIONS["portable"], made, [], alone | {"spare": 99}, now)
    finally:
        somebody.rollback()
        fetch("DELETE FROM django_reliable_jobs_queuestate; DELETE FROM django_reliable_jobs_job")
    assert one == other
    assert small | {"candidates": 0} == reference | {"candidates": 0}


def _values(row: dict[str, Any], number: int, now: datetime) -> dict[str, Any]:
    values: dict[str, Any] = {key: value for key, value in row.items() if key != "locked"}
    for name in ("run_at", "expires_at", "unknown_since", "cancel_requested_at"):
        if values[name] is not None:
            values[name] = now + timedelta(minutes=values[name])
    values |= {"name": "probes.noop", "unique_key": str(number), "fencing_token": 1_000_000 + 10 * number}
    if values["status"] == JobStatus.RUNNING:
        values |= {"locked_by": WORKER, "locked_until": now, "started_at": now}
    return values


def _run(
    function: Any,
    made: list[Job],
    offered: list[tuple[int, Outcome, int, str | None]],
    wish: dict[str, Any],
    now: datetime,
) -> dict[str, Any]:
    offers = {
        number: Settlement(lease_of(made[number], token=made[number].fencing_token + wrong), outcome, progress)
        for number, outcome, wrong, progress in offered
        if number < len(made)
    }
    pairs = [
        Source(
            queue,
            priority,
            BEGINNING if since is None else now + timedelta(minutes=since),
            wish["caps"].get(queue),
            made[number].pk if number < len(made) else 0,
        )
        for queue, priority, since, number in wish["pairs"]
    ]
    window = wish["free"] + wish["ahead"] + wish["spare"]
    with transaction.atomic():
        before = set(Job.objects.values_list("fencing_token", flat=True))
        got = function(
            "default", WORKER, 30.0, list(offers.values()), ClaimRequest(wish["free"], wish["ahead"], pairs, window)
        )
        seen = _seen(got, before, now)
        transaction.set_rollback(True)
    return seen


def _seen(got: Exchanged, before: set[int], now: datetime) -> dict[str, Any]:
    tokens = {lease.job_id: lease.token for lease in got.leases}
    assert len(set(tokens.values()) - before) == len(tokens), "every claim has a token of its own"
    rows = [{name: _blunt(value, now) for name, value in row.items()} for row in Job.objects.order_by("id").values()]
    for row in rows:
        if row["id"] in tokens:
            assert row.pop("fencing_token") == tokens[row["id"]]
    return {
        "settled": got.settled,
        "candidates": got.candidates,
        "leases": [
            {
                name: _blunt(getattr(lease, name), now)
                for name in lease.__slots__
                if name not in ("token", "args", "kwargs")
            }
            for lease in got.leases
        ],
        "rows": rows,
        "attempts": [
            {name: _blunt(value, now) for name, value in row.items() if name != "id"}
            for row in JobAttempt.objects.order_by("job_id").values()
        ],
    }


def _blunt(value: Any, now: datetime) -> Any:
    """Times as minutes from `now`: the two runs differ in milliseconds."""
    if isinstance(value, datetime):
        return round((value - now).total_seconds() / 60)
    if isinstance(value, float):
        return round(value / 60)
    return str(value) if isinstance(value, UUID) else value
