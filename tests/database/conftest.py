"""The two implementations of the exchange, so that every rule is tried on both.

The small statement, which a worker uses that has nothing to settle, is a third one where it may be used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from django_reliable_jobs.store import exchange as one_statement
from django_reliable_jobs.store.exchange import ClaimRequest, Exchanged, Settlement, Source
from tests.support.factories import OWNER
from tests.support.store import portable

IMPLEMENTATIONS = {"one statement": one_statement.exchange, "portable": portable.exchange}


def light(alias: str, worker: UUID, lease: float, offers: Sequence[Settlement], wish: ClaimRequest) -> Exchanged:
    """As a worker that is idle asks."""
    wish.light = not offers and may_be_light(wish)
    return one_statement.exchange(alias, worker, lease, offers, wish)


def may_be_light(wish: ClaimRequest) -> bool:
    plain = len(wish.pairs) == 1 and wish.pairs[0].cap is None
    plain = plain and wish.payload_bytes == ClaimRequest().payload_bytes
    return plain and wish.free > 0 and wish.ahead == 0 and wish.window == wish.free


class Exchange:
    """One of the implementations, with what most tests leave alone filled in."""

    def __init__(self, function: Callable[..., Exchanged]) -> None:
        self.function = function
        self.worker = OWNER

    def __call__(
        self,
        offers: Sequence[Settlement] = (),
        wish: ClaimRequest | None = None,
        *,
        worker: UUID | None = None,
        lease: float = 30.0,
    ) -> Exchanged:
        return self.function("default", worker or self.worker, lease, offers, wish or ClaimRequest())

    def claim(
        self, free: int = 8, ahead: int = 0, *, pairs: Sequence[Source] | None = None, window: int = 0
    ) -> list[int]:
        """The ids of the jobs that were claimed, in the order to run them."""
        got = self(wish=ClaimRequest(free, ahead, pairs or [Source("default", 0)], window))
        return [lease.job_id for lease in got.leases]


@pytest.fixture(params=[*IMPLEMENTATIONS.values(), light], ids=[*IMPLEMENTATIONS, "small statement"])
def exchange(request: pytest.FixtureRequest) -> Exchange:
    return Exchange(request.param)
