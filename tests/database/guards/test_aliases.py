"""`using=`: guards and fences on another database than the jobs'. Tokens compare within one alias only."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connections, transaction
from django.db.transaction import TransactionManagementError

from django_reliable_jobs import StaleToken
from django_reliable_jobs.fencing import fence
from django_reliable_jobs.guards import (
    aclaim_once,
    claim_once,
    claim_period,
    claim_rows,
    current_lease,
    guarded,
    run_exclusive,
    run_once,
)
from django_reliable_jobs.models import Fence, GuardClaim
from tests.database.enqueue.test_routing import other_database
from tests.support.guards.app.models import Sheet, Ticket
from tests.support.guards.fixtures import run

__all__ = ["other_database"]

LONG = 10 * 365 * 86_400


class Undo(Exception):
    pass


@pytest.fixture
def other(other_database: None, database: None) -> Iterator[str]:
    yield "other"
    for model in (GuardClaim, Fence, Sheet, Ticket):
        model.objects.using("other").all().delete()  # type: ignore[attr-defined]


CALLS: dict[str, Callable[[str | None], object]] = {
    "claim_period": lambda using: claim_period("key", LONG, using=using),
    "claim_once": lambda using: claim_once("key", using=using),
    "run_once": lambda using: run_once("key", LONG, lambda: 1, using=using),
    "guarded": lambda using: guarded(claim_once, "decorated", using=using)(lambda: 1)(),
    "coroutine": lambda using: run(aclaim_once("awaited", using=using)),
}


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_database_has_keys_of_its_own(other: str, call: Callable[[str | None], object], connected: bool) -> None:
    def ask(using: str | None) -> bool:
        for alias in ("default", other):
            connections[alias].ensure_connection() if connected else connections[alias].close()
        return bool(call(using))

    assert [ask(other), ask(other)] == [True, False]
    assert [ask(None), ask("default")] == [True, False]
    assert (GuardClaim.objects.using(other).count(), GuardClaim.objects.using("default").count()) == (1, 1)


def test_a_lease_on_another_database_is_renewed_and_released_there(other: str) -> None:
    def hold() -> tuple[int, bool]:
        lease = current_lease()
        assert lease is not None
        assert not run_exclusive("import", 1, lambda: 1, using=other)
        assert run_exclusive("import", 1, lambda: 1), "here it is free"
        return lease.token, lease.lost.wait(1.5)

    held = run_exclusive("import", 1, hold, using=other)
    assert held.value is not None
    assert held.value[1] is False, "it outlived its ttl, so it was renewed"
    assert GuardClaim.objects.using(other).get().fencing_token == held.value[0]
    assert run_exclusive("import", 1, lambda: 1, using=other)


def test_a_claim_belongs_to_the_transaction_on_its_own_database_and_to_no_other(other: str) -> None:
    with pytest.raises(Undo), transaction.atomic(using=other):
        assert claim_once("event", using=other)
        raise Undo
    assert claim_once("event", using=other), "the rollback there has freed it"
    with pytest.raises(Undo), transaction.atomic():
        assert claim_once("another", using=other)
        raise Undo
    assert not claim_once("another", using=other), "the rollback here has nothing to do with it"


def test_a_run_refuses_a_transaction_on_any_database(other: str) -> None:
    """What the function writes may be on either."""
    for alias, using in (("default", other), (other, None)):
        with transaction.atomic(using=alias), pytest.raises(RuntimeError, match=f"in a transaction on '{alias}'"):
            run_exclusive("import", 30, lambda: 1, using=using)


def test_a_fence_is_one_of_its_own_on_each_database(other: str) -> None:
    def write(alias: str, token: int) -> None:
        with transaction.atomic(using=alias):
            fence("stock", token, using=alias)
            Sheet.objects.using(alias).create(name=f"{token}")

    write(other, 7)
    write("default", 5)
    with pytest.raises(StaleToken):
        write(other, 5)
    write(other, 8)
    assert sorted(Sheet.objects.using(other).values_list("name", flat=True)) == ["7", "8"]
    assert list(Sheet.objects.using("default").values_list("name", flat=True)) == ["5"]
    assert Fence.objects.using(other).get().fencing_token == 8


def test_a_fence_wants_the_transaction_on_its_own_database(other: str) -> None:
    with transaction.atomic(), pytest.raises(TransactionManagementError, match=r"inside atomic\(using='other'\)"):
        fence("stock", 5, using=other)
    with transaction.atomic(using=other):
        with pytest.raises(TransactionManagementError, match=r"inside atomic\(using='default'\)"):
            fence("stock", 5)
        fence("stock", 5, using=other)


def test_a_fenced_update_goes_where_its_queryset_does(other: str) -> None:
    Sheet.objects.using(other).create(name="a")
    Sheet.objects.create(name="a")
    assert Sheet.objects.using(other).filter(name="a").fenced_update(7, text="there") == 1
    assert Sheet.objects.filter(name="a").fenced_update(5, text="here") == 1
    with pytest.raises(StaleToken):
        Sheet.objects.using(other).filter(name="a").fenced_update(5, text="late")
    assert Sheet.objects.using(other).get().text == "there"
    assert Sheet.objects.get().text == "here"


def test_rows_are_claimed_on_the_querysets_database(other: str) -> None:
    Ticket.objects.using(other).create()
    assert claim_rows(Ticket.objects.filter(state="new"), 5, state="taken") == []
    (row,) = claim_rows(Ticket.objects.using(other).filter(state="new"), 5, state="taken")
    assert row._state.db == other
    assert Ticket.objects.using(other).get().state == "taken"
