"""The exchange: a worker hands in what has finished and takes what it may run (protocol 2 to 5).

It is one statement, and a smaller one (`claim_light`) where there is nothing to settle and one place to claim from. A readable
reference in a transaction stands in `tests/support/store/portable.py`; `tests/database/store/test_exchange_contract.py` and
`test_claim_contract.py` hold both to one contract.

An offer that is not in `settled` was not written. `reread` says why, and only a lost one is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from django_reliable_jobs.connections.statement_text import Row
from django_reliable_jobs.store.statements import as_django, run, run_positional
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.lease import Lease, LeaseKey
from django_reliable_jobs.values.moments import EARLIEST
from django_reliable_jobs.values.outcome import Outcome
from django_reliable_jobs.values.states import JobStatus

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class Settlement(NamedTuple):
    """An outcome for a lease, with the last progress that was reported (JSON text)."""

    lease: Lease
    outcome: Outcome
    progress: str | None = None


class Source(NamedTuple):
    """Where to look for jobs: a queue and a priority, from the place (`since`, `job_id`) in their order on.

    `cap`, the most to take of the queue (None: no cap), is the same in all pairs of the queue. `window` bounds how many of its
    rows are looked at (None: as in the wish); those that rivals hold locked count.
    """

    queue: str
    priority: int
    since: datetime = BEGINNING
    cap: int | None = None
    job_id: int = 0
    window: int | None = None


@dataclass(slots=True)
class ClaimRequest:
    """What the worker would take: `free` slots now, and `ahead` of free slots as far as protocol 8 allows it.

    `window` bounds how many candidates are looked at in each pair; rows that rivals hold locked count towards it.
    `payload_bytes` bounds the arguments of what is taken, as far as the database knows without reading them; for a free slot
    one job is taken in any case.
    `unknown` are job names that are left to other workers. `light`: it is for free slots, from one pair without a cap, and
    all that rivals hold is passed over; with nothing to settle a smaller statement does it.
    """

    free: int = 0
    ahead: int = 0
    pairs: Sequence[Source] = ()
    window: int = 0
    unknown: Sequence[str] = ()
    light: bool = False
    payload_bytes: int = 2**60

    def __post_init__(self) -> None:
        self.window = max(self.window, self.free + self.ahead)

    def window_of(self, pair: Source) -> int:
        return self.window if pair.window is None else pair.window


@dataclass(slots=True)
class Exchanged:
    """`settled`: the offers that were written. `leases`: in the order to run them. `seen`: how many rows were looked at in
    each pair. `too_large`: some were left for the size of their arguments."""

    settled: set[LeaseKey] = field(default_factory=set)
    leases: list[Lease] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    too_large: bool = False

    @property
    def candidates(self) -> int:
        return sum(self.seen)

    def full(self, wish: ClaimRequest) -> list[Source]:
        """The pairs that may have had more than was looked at."""
        return [pair for pair, seen in zip(wish.pairs, self.seen, strict=False) if seen >= wish.window_of(pair)]


class RowState(Enum):
    """Where an offer or a heartbeat stands that was not written."""

    BUSY = "somebody holds the row locked: offer it again"
    RECORDED = "it is recorded already: the answer of an earlier commit was lost"
    LOST = "somebody else owns the job: drop it"


def exchange(alias: str, worker: UUID, lease: float, offers: Sequence[Settlement], wish: ClaimRequest) -> Exchanged:
    """Settle `offers` and claim what `wish` allows, in one statement and one commit. `lease` is in seconds."""
    if wish.light and not offers:
        return _claim(alias, worker, lease, wish)
    rows = run_positional(
        alias, "exchange", {"worker": worker, "lease": lease} | offer_params(offers) | wish_params(wish)
    )
    tokens, places, counts, too_large = rows[0][:4]
    written = set(tokens or ())
    settled = {offer.lease.key for offer in offers if offer.lease.token in written}
    seen = [0] * len(wish.pairs)
    for place, count in zip(places or (), counts or (), strict=True):
        seen[place - 1] = count
    return Exchanged(settled, sort_leases(lease_from(row[4:]) for row in rows[1:]), seen, bool(too_large))


def _claim(alias: str, worker: UUID, lease: float, wish: ClaimRequest) -> Exchanged:
    [pair] = wish.pairs
    params = {
        "worker": worker, "lease": lease, "queue": pair.queue, "priority": pair.priority, "since": _since(pair),
        "since_id": pair.job_id, "free": wish.free, "unknown_names": list(wish.unknown) or "{}",
    }  # fmt: skip
    leases = sort_leases(map(lease_from, run_positional(alias, "claim_light", params)))
    return Exchanged(leases=leases, seen=[len(leases)])


def offer_params(offers: Sequence[Settlement]) -> dict[str, Any]:
    """Most jobs are DONE with nothing to tell: two numbers each. Dumping an element of an array costs a microsecond."""
    done = [offer.lease for offer in offers if offer.outcome is outcome.DONE and offer.progress is None]
    rest = [offer for offer in offers if offer.outcome is not outcome.DONE or offer.progress is not None]
    params: dict[str, Any] = {
        "done_ids": _array([lease.job_id for lease in done]),
        "done_tokens": _array([lease.token for lease in done]),
    }
    return params | (_in_full(rest) if rest else NOTHING_ELSE)


def _in_full(rest: Sequence[Settlement]) -> dict[str, Any]:
    errors = [offer.outcome.error for offer in rest]
    return {
        "job_ids": [offer.lease.job_id for offer in rest],
        "tokens": [offer.lease.token for offer in rest],
        "statuses": [offer.outcome.status.value for offer in rest],
        "reasons": [offer.outcome.reason for offer in rest],
        "delays": [offer.outcome.delay for offer in rest],
        "give_backs": [int(offer.outcome.give_back) for offer in rest],
        "unbeguns": [offer.outcome.unbegun for offer in rest],
        "results": [offer.outcome.result for offer in rest],
        "progresses": [offer.progress for offer in rest],
        "error_attempts": [offer.lease.attempt for offer in rest],
        "error_kinds": [error and error.kind for error in errors],
        "error_messages": [error and error.message for error in errors],
        "error_tracebacks": [error and error.traceback for error in errors],
    }


#: The columns of `_in_full` without an offer.
NOTHING_ELSE = dict.fromkeys(
    ("job_ids", "tokens", "statuses", "reasons", "delays", "give_backs", "unbeguns", "results",
     "progresses", "error_attempts", "error_kinds", "error_messages", "error_tracebacks"),
    "{}",
)  # fmt: skip


def _since(pair: Source) -> datetime | str:
    """What stands at the calendar's beginning stands there for all that is stored before it (`{moment …}`)."""
    return "-infinity" if pair.since <= EARLIEST else pair.since


def _array(values: Iterable[int | datetime | str | None]) -> str:
    """A literal for an array of integers or moments."""
    return f"{{{','.join('NULL' if value is None else str(value) for value in values)}}}"


def wish_params(wish: ClaimRequest) -> dict[str, Any]:
    return {
        "queues": [p.queue for p in wish.pairs],
        "priorities": _array([p.priority for p in wish.pairs]),
        "sinces": _array([_since(p) for p in wish.pairs]),
        "since_ids": _array([p.job_id for p in wish.pairs]),
        "caps": _array([p.cap for p in wish.pairs]),
        "windows": _array([wish.window_of(p) for p in wish.pairs]),
        "window": max(map(wish.window_of, wish.pairs), default=0),
        "payload_bytes": wish.payload_bytes,
        "free": wish.free,
        "ahead": wish.ahead,
        "unknown_names": list(wish.unknown) or "{}",
    }


def lease_from(row: Row) -> Lease:
    (job_id, token, name, queue, priority, args, kwargs, attempt, max_attempts, losses, timeout, idempotency_key,
     scheduled_for, run_at, expires_in, infrastructure_failures) = row  # fmt: skip
    # What is compared and handed back does not depend on USE_TZ.
    run_at = run_at.replace(tzinfo=UTC)
    if scheduled_for is not None:  # the handler's
        scheduled_for = as_django(scheduled_for)
    return Lease(
        job_id, token, name, queue, priority, args, kwargs, attempt, max_attempts, losses, timeout, idempotency_key,
        scheduled_for, run_at, expires_in, infrastructure_failures,
    )  # fmt: skip


def sort_leases(leases: Iterable[Lease]) -> list[Lease]:
    return sorted(leases, key=lambda one: (-one.priority, one.run_at, one.job_id))


def reread(alias: str, keys: Sequence[LeaseKey], worker: UUID | None = None) -> dict[LeaseKey, RowState]:
    """Read again the pairs that an exchange or a heartbeat did not bring back. A row that is gone is lost.

    A reaped row keeps its token until the next claim; the attempt that the reaper recorded tells it from a settled one.
    `worker` is whose they are; None: anybody's.
    """
    if not keys:
        return {}
    found = {
        row[0]: row[1:] for row in run(alias, "reread", {"job_ids": [key.job_id for key in keys], "worker": worker})
    }
    result: dict[LeaseKey, RowState] = {}
    for key in keys:
        token, status, reaped, anothers = found.get(key.job_id, (None, None, False, False))
        if token != key.token or reaped or (anothers and status == JobStatus.RUNNING):
            result[key] = RowState.LOST
        elif status == JobStatus.RUNNING:
            result[key] = RowState.BUSY
        else:
            result[key] = RowState.RECORDED
    return result
