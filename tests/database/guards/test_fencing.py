"""Fences: the newest owner's writes stay, and an older one's are refused, whatever they were waiting for."""

from __future__ import annotations

import time

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.db.transaction import TransactionManagementError

from django_reliable_jobs import StaleToken
from django_reliable_jobs.fencing import fence
from django_reliable_jobs.guards import advisory_xact_lock
from django_reliable_jobs.models import Fence
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.running.context import JobContext, run_in_context
from tests.support.factories import JobFactory, lease_of, next_token
from tests.support.guards.app.jobs import fenced, fenced_async
from tests.support.guards.app.models import Entry, Sheet
from tests.support.guards.fixtures import run
from tests.support.sessions import Session, wait_until


def write(name: str, token: int) -> None:
    with transaction.atomic():
        fence(name, token)
        Entry.objects.create(label=name, token=token)


def tokens() -> list[int]:
    return list(Entry.objects.order_by("id").values_list("token", flat=True))


def test_the_newest_owner_passes_again_and_again_and_an_older_one_does_not(way: str) -> None:
    write("stock", 5)
    write("stock", 5)
    write("stock", 7)
    with pytest.raises(StaleToken, match="newer owner than the one with token 5"):
        write("stock", 5)
    write("stock", 7)
    assert tokens() == [5, 5, 7, 7]


def test_each_name_is_a_fence_of_its_own(way: str) -> None:
    write("stock", 7)
    write("prices", 5)
    assert tokens() == [7, 5]


def test_a_rollback_leaves_the_fence_as_it_was(way: str) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        fence("stock", 9)
        1 / 0  # noqa: B018
    write("stock", 5)


def test_a_stale_owner_cannot_commit_anything_of_its_transaction(way: str) -> None:
    write("stock", 7)
    with pytest.raises(StaleToken), transaction.atomic():
        Entry.objects.create(label="before the fence", token=5)
        fence("stock", 5)
    assert tokens() == [7]


def test_the_fence_is_held_until_the_commit(database: None) -> None:
    """A newer owner waits, so what the older one commits comes first; from then on the older one is refused."""
    with Session() as older, Session() as newer:
        older.begin()
        older.do(fence, "stock", 5)
        answer = newer.start(write, "stock", 7)
        newer.waits_for(answer)
        older.do(Entry.objects.create, label="stock", token=5)
        older.commit()
        answer.result(60)
        with pytest.raises(StaleToken):
            older.do(write, "stock", 5)
    assert tokens() == [5, 7]


def test_an_older_owner_that_waited_for_a_newer_one_is_refused(database: None) -> None:
    with Session() as older, Session() as newer:
        newer.begin()
        newer.do(fence, "stock", 7)
        answer = older.start(write, "stock", 5)
        older.waits_for(answer)
        newer.commit()
        with pytest.raises(StaleToken):
            answer.result(60)
    assert tokens() == []


def test_outside_of_a_transaction_a_fence_would_hold_nothing(way: str) -> None:
    with pytest.raises(TransactionManagementError, match=r"inside atomic\(using='default'\)"):
        fence("stock", 5)
    assert not Fence.objects.exists()


@pytest.mark.parametrize("token", [0, -1, True, "5", None, 5.0])
def test_what_is_no_token_is_refused(token: object) -> None:
    with pytest.raises(ValueError, match="fencing token"):
        fence("stock", token)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fencing token"):
        Sheet.objects.fenced_update(token)


@pytest.mark.parametrize("name", ["", "x" * 256, "nul\0", 5])
def test_what_is_no_name_is_refused(name: object) -> None:
    with pytest.raises(ValueError, match="fence's name"):
        fence(name, 5)  # type: ignore[arg-type]


def test_a_transaction_that_stands_still_in_a_job_is_ended_by_the_server(database: None, settings: object) -> None:
    """A process that is stopped inside must not hold the fence for ever: the time that is left and the grace time."""
    settings.RELIABLE_JOBS = {"GRACE": 0.3}  # type: ignore[attr-defined]
    attempt = Attempt(lease_of(JobFactory(running=True, timeout=0.2)))
    attempt.start()

    def stopped() -> None:
        with transaction.atomic():
            fence("stock", 5)
            with Session() as other:
                answer = other.start(write, "stock", 7)
                other.waits_for(answer)
                answer.result(60)  # the server has ended this transaction meanwhile
            Entry.objects.create(label="too late", token=5)

    with pytest.raises(Exception, match="idle-in-transaction|closed|terminat"):
        run_in_context(JobContext(attempt, "default"), stopped)
    connection.close()
    assert tokens() == [7]


def test_a_fenced_update_stamps_the_row_and_refuses_an_older_writer(way: str) -> None:
    Sheet.objects.create(name="a")
    mine = Sheet.objects.filter(name="a")
    assert mine.fenced_update(5, text="five", total=F("total") + 1) == 1
    assert mine.fenced_update(5, text="five again", total=F("total") + 1) == 1
    assert mine.fenced_update(7, text="seven", total=F("total") + 1) == 1
    with pytest.raises(StaleToken, match=r"guarded\.Sheet.*token 5"):
        mine.fenced_update(5, text="late", total=F("total") + 1)
    assert list(mine.values_list("text", "total", "fencing_token")) == [("seven", 3, 7)]


def test_a_fenced_update_of_several_rows_is_all_or_nothing(way: str) -> None:
    for name, token in (("a", 3), ("b", 9)):
        Sheet.objects.create(name=name, fencing_token=token)
    with pytest.raises(StaleToken):
        Sheet.objects.fenced_update(5, text="changed")
    assert not Sheet.objects.filter(text="changed").exists()
    with transaction.atomic():
        with pytest.raises(StaleToken):
            Sheet.objects.fenced_update(5, text="changed")
        assert Sheet.objects.filter(name="a").fenced_update(5, text="mine") == 1, "the transaction goes on"
    assert Sheet.objects.filter(name="nobody").fenced_update(5, text="x") == 0


def test_a_fenced_update_whose_filter_no_longer_fits_says_so_all_the_same(way: str) -> None:
    """A newer owner has moved the row to where the older one's filter does not find it: no row, no error."""
    Sheet.objects.create(name="a", text="new")
    assert Sheet.objects.filter(text="new").fenced_update(7, text="taken") == 1
    assert Sheet.objects.filter(text="new").fenced_update(5, text="taken") == 0


def test_a_fenced_update_waits_for_a_newer_writer_and_is_refused(database: None) -> None:
    Sheet.objects.create(name="a")
    with Session() as older, Session() as newer:
        newer.begin()
        newer.do(Sheet.objects.fenced_update, 7, text="seven")
        answer = older.start(Sheet.objects.fenced_update, 5, text="five")
        older.waits_for(answer)
        newer.commit()
        with pytest.raises(StaleToken):
            answer.result(60)
    assert Sheet.objects.get().text == "seven"


def test_the_stamp_is_not_for_callers_to_set(database: None) -> None:
    with pytest.raises(TypeError, match="sets fencing_token itself"):
        Sheet.objects.fenced_update(5, fencing_token=9)


def test_a_fenced_update_for_coroutines(database: None) -> None:
    Sheet.objects.create(name="a")
    assert run(Sheet.objects.filter(name="a").afenced_update(5, text="five")) == 1


# --- the advisory lock ----------------------------------------------------------------------------


def test_the_advisory_lock_is_held_until_the_transaction_ends_and_no_longer(way: str) -> None:
    with transaction.atomic():
        advisory_xact_lock("nightly import")
        assert advisory_locks() == 1
    assert advisory_locks() == 0
    with pytest.raises(TransactionManagementError, match=r"inside atomic\(\)"):
        advisory_xact_lock("nightly import")


def test_whoever_wants_the_same_advisory_lock_waits(database: None) -> None:
    def locked() -> float:
        with transaction.atomic():
            advisory_xact_lock("nightly import")
            return time.monotonic()

    with Session() as first, Session() as second, Session() as third:
        first.begin()
        first.do(advisory_xact_lock, "nightly import")
        answer = second.start(locked)
        second.waits_for(answer)
        third.begin()
        third.do(advisory_xact_lock, "another one")
        first.rollback()
        answer.result(60)


def advisory_locks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        return int(cursor.fetchone()[0])


def test_nothing_of_guards_or_fences_takes_an_advisory_lock_by_itself(way: str) -> None:
    """M01, for the part that needs no migration: nothing can be left behind on a pooled session."""
    from django_reliable_jobs.guards import claim_once, claim_period, run_exclusive, run_once

    def look() -> int:
        return advisory_locks()

    assert claim_once("a")
    assert claim_period("a", 3600)
    assert run_once("a", 3600, look).value == 0
    assert run_exclusive("a", 30, look).value == 0
    with transaction.atomic():
        fence("a", 5)
        assert claim_once("b")
        assert advisory_locks() == 0
    wait_until(lambda: advisory_locks() == 0, "there is no advisory lock")


@pytest.mark.parametrize("asynchronously", [False, True])
def test_a_job_that_is_called_here_and_now_passes_its_fence(database: None, asynchronously: bool) -> None:
    """Case U06: `.call()` has a real token, greater than those of earlier claims."""
    earlier = next_token()
    entries = [fenced_async, fenced] if asynchronously else [fenced]
    for definition in entries:
        first, second = (
            run(definition.acall("called")) if asynchronously else definition.call("called") for _ in range(2)
        )
        assert earlier < first < second
        earlier = second
    assert tokens() == sorted(tokens())
    assert len(tokens()) == 2 * len(entries)
