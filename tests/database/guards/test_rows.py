"""`claim_rows`: each row goes to one caller."""

from __future__ import annotations

import threading

import pytest
from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Concat

from django_reliable_jobs.guards import aclaim_rows, claim_rows
from tests.support.guards.app.models import Hold, Sheet, Ticket
from tests.support.guards.fixtures import run
from tests.support.sessions import Session, together


def make(count: int) -> list[int]:
    return [ticket.pk for ticket in Ticket.objects.bulk_create([Ticket() for _ in range(count)])]


def test_it_returns_the_rows_that_it_changed_in_order_and_as_they_are_now(way: str) -> None:
    ids = make(5)
    got = claim_rows(Ticket.objects.filter(state="new").order_by("-id"), 3, state="taken", taken_by="me")
    assert [ticket.pk for ticket in got] == ids[:1:-1]
    assert {(ticket.state, ticket.taken_by) for ticket in got} == {("taken", "me")}
    assert list(Ticket.objects.filter(taken_by="me").order_by("id").values_list("id", flat=True)) == ids[2:]
    assert len(claim_rows(Ticket.objects.filter(state="new"), 10, state="taken")) == 2
    assert claim_rows(Ticket.objects.filter(state="new"), 10, state="taken") == []


def test_what_the_database_computes_is_on_the_instances(way: str) -> None:
    make(2)
    for turn in (1, 2):
        got = claim_rows(
            Ticket.objects.order_by("id"), 2, times=F("times") + 1, taken_by=Concat(F("state"), Value("!")), state="new"
        )
        assert [(ticket.times, ticket.taken_by, ticket.state) for ticket in got] == [(turn, "new!", "new")] * 2


def test_many_callers_share_the_rows_and_nobody_gets_one_twice(way: str) -> None:
    ids = make(60)
    barrier = threading.Barrier(6)

    def caller(number: int) -> list[int]:
        barrier.wait(30)
        mine: list[int] = []
        while Ticket.objects.filter(state="new").exists():
            mine += [
                t.pk for t in claim_rows(Ticket.objects.filter(state="new").order_by("id"), 4, state=f"by {number}")
            ]
        return mine

    shares = together(*[lambda number=number: caller(number) for number in range(6)])  # type: ignore[misc]
    assert sorted(pk for share in shares for pk in share) == ids
    for number, share in enumerate(shares):
        assert set(Ticket.objects.filter(state=f"by {number}").values_list("id", flat=True)) == set(share)


def test_rows_that_somebody_holds_are_skipped_and_not_waited_for(database: None) -> None:
    ids = make(3)
    with Session() as other:
        other.begin()
        assert [t.pk for t in other.do(claim_rows, Ticket.objects.order_by("id"), 1, state="taken")] == ids[:1]
        got = claim_rows(Ticket.objects.filter(state="new").order_by("id"), 10, state="mine")
        assert [ticket.pk for ticket in got] == ids[1:]
        other.rollback()
    assert [t.pk for t in claim_rows(Ticket.objects.filter(state="new"), 10, state="mine")] == ids[:1]


def test_a_row_that_a_new_foreign_key_refers_to_is_not_skipped(database: None) -> None:
    ids = make(1)
    with Session() as other:
        other.begin()
        other.do(Hold.objects.create, ticket_id=ids[0])
        assert claim_rows(Ticket.objects.filter(state="new"), 10, state="mine")


def test_a_row_that_another_table_has_just_taken_out_is_left_alone(database: None) -> None:
    """The first claimer says so in another table and has not touched the row: its version tells nothing."""
    (ticket,) = make(1)
    free = Ticket.objects.filter(holds__isnull=True)
    with Session() as first, Session() as second:
        first.begin()
        first.sql("SELECT * FROM guarded_ticket WHERE id = %s FOR NO KEY UPDATE", [ticket])
        first.do(Hold.objects.create, ticket_id=ticket)
        # The second one's statement has its snapshot, and waits for a lock before it comes to the row.
        second.begin()
        third = Session()
        third.sql("SELECT pg_advisory_lock(42)")
        slow = free.extra(where=["(SELECT true FROM pg_advisory_xact_lock_shared(42))"])
        answer = second.start(claim_rows, slow, 10, state="mine")
        second.waits_for(answer)
        first.commit()
        third.sql("SELECT pg_advisory_unlock(42)")
        assert answer.result(60) == []
        third.__exit__()
        second.commit()
    assert Ticket.objects.get().state == "new"


def test_it_joins_the_callers_transaction(way: str) -> None:
    make(2)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert len(claim_rows(Ticket.objects.filter(state="new"), 2, state="taken")) == 2
        1 / 0  # noqa: B018
    assert Ticket.objects.filter(state="new").count() == 2


def test_joins_and_related_rows_are_fine_and_only_the_rows_themselves_are_locked(database: None) -> None:
    sheet = Sheet.objects.create(name="a")
    Ticket.objects.create(sheet=sheet)
    Ticket.objects.create()
    with Session() as other:
        other.begin()
        other.sql("SELECT * FROM guarded_sheet FOR UPDATE")
        got = claim_rows(Ticket.objects.select_related("sheet").order_by("id"), 10, state="mine")
    assert [ticket.sheet and ticket.sheet.name for ticket in got] == ["a", None]


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "2", None])
def test_what_is_no_limit_is_refused(limit: object) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        claim_rows(Ticket.objects.all(), limit, state="x")  # type: ignore[arg-type]


def test_a_claim_that_changes_nothing_or_is_sliced_is_refused() -> None:
    with pytest.raises(TypeError, match="needs changes"):
        claim_rows(Ticket.objects.all(), 5)
    with pytest.raises(TypeError, match="not sliced"):
        claim_rows(Ticket.objects.all()[:5], 5, state="x")


def test_for_coroutines(database: None) -> None:
    make(2)
    assert len(run(aclaim_rows(Ticket.objects.filter(state="new"), 5, state="taken"))) == 2
