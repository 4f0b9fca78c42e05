"""`claim_period` and `claim_once` on each store: one caller gets the key, until its time is over."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from django_reliable_jobs.guards import aclaim_once, aclaim_period, claim_once, claim_period
from django_reliable_jobs.schedules import CronExpression, ScheduleError
from tests.support.guards.fixtures import NULL, Configure, run
from tests.support.sessions import Session, together, wait_until

LONG = 10 * 365 * 86_400  # seconds: a period that does not end during a test


def test_the_first_caller_in_a_period_gets_it_and_nobody_else_does(store: str) -> None:
    assert claim_period("report", LONG) is True
    assert claim_period("report", LONG) is False
    assert together(*[lambda: claim_period("report", LONG)] * 3) == [False] * 3


def test_the_next_period_can_be_claimed_and_once_only(store: str) -> None:
    assert claim_period("tick", 1) in (True, False)
    claimed: list[bool] = []
    wait_until(lambda: claimed.append(claim_period("tick", 1)) or claimed[-1], "the next second can be claimed")
    wait_until(lambda: claimed.append(claim_period("tick", 1)) or claimed[-1], "the one after that too")


@pytest.mark.parametrize(
    "period",
    [3600, timedelta(hours=1), "@every 1h", "0 10 * * *", CronExpression.parse("0 10 * * *", "Asia/Ho_Chi_Minh")],
)
def test_a_period_is_whatever_has_fire_times(store: str, period: object) -> None:
    assert claim_period("report", period) is True  # type: ignore[arg-type]
    assert claim_period("report", period) is False  # type: ignore[arg-type]


@pytest.mark.parametrize("period", [0, 0.5, -1, "every hour", "* * *"])
def test_what_is_no_period_is_refused(period: object) -> None:
    with pytest.raises(ScheduleError):
        claim_period("report", period)  # type: ignore[arg-type]


def test_an_event_is_claimed_once_for_good(store: str) -> None:
    assert claim_once("invoice:1") is True
    assert claim_once("invoice:1") is False
    assert claim_once("invoice:2") is True


def test_a_claim_with_a_ttl_is_free_after_it(store: str) -> None:
    assert claim_once("mail:1", ttl=0.5) is True
    assert claim_once("mail:1", ttl=0.5) is False
    wait_until(lambda: claim_once("mail:1", ttl=timedelta(hours=1)), "the claim ends")
    assert claim_once("mail:1") is False


def test_one_key_means_something_else_for_each_kind_of_guard(store: str) -> None:
    assert claim_period("report", LONG)
    assert claim_once("report")


@pytest.mark.parametrize("key", ["", "x" * 501, "nul\0", "\ud800"])
def test_a_key_that_no_store_could_keep_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="1 to 500 characters|cannot be stored with the character"):
        claim_once(key)


def test_a_long_key_of_any_characters_is_a_key(store: str) -> None:
    key = "Rechnung/größer*[ñ] {x}" + "語" * 400
    assert claim_once(key) is True
    assert claim_once(key) is False
    assert claim_once(key + "x") is True


def test_of_many_threads_at_once_one_gets_each_key(store: str) -> None:
    for number in range(5):
        barrier = threading.Barrier(8)

        def caller(key: str = f"event:{number}", barrier: threading.Barrier = barrier) -> bool:
            barrier.wait(30)
            return claim_once(key)

        assert sum(together(*[caller] * 8)) == 1


def test_coroutines_claim_as_functions_do(store: str) -> None:
    async def claim() -> list[bool]:
        once = [await aclaim_once("event:1"), await aclaim_once("event:1")]
        return once + [await aclaim_period("report", LONG), await aclaim_period("report", LONG)]

    assert run(claim()) == [True, False, True, False]


def test_the_null_store_grants_everything(database: None, configure: Configure) -> None:
    configure(STORE=NULL)
    assert [claim_period("report", LONG), claim_period("report", LONG)] == [True, True]
    assert [claim_once("event"), claim_once("event")] == [True, True]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_stricter_default_level_of_the_server_changes_no_answer(database: None, level: str) -> None:
    """Case P12: the rival whom the claim waited for has committed."""
    with Session() as rival, Session() as late:
        late.sql(f"SET default_transaction_isolation = '{level}'")
        rival.begin()
        assert rival.do(claim_once, "order") is True
        answer = late.start(claim_once, "order")
        late.waits_for(answer)
        rival.commit()
        assert answer.result(60) is False
