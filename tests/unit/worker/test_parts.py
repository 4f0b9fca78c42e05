"""The small parts of a worker: options, where it looks for jobs, how many it takes, when it may reap."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from django_reliable_jobs.errors import LeaseLost
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.store.exchange import ClaimRequest, Exchanged
from django_reliable_jobs.store.queues_with_work import Look, Work
from django_reliable_jobs.values.elapsed import elapsed
from django_reliable_jobs.worker.handlers.handler_connections import leaves_a_trace
from django_reliable_jobs.worker.leases.claim_plan import ClaimPlan
from django_reliable_jobs.worker.leases.database_contact import DatabaseContact
from django_reliable_jobs.worker.leases.prefetch import MOST, Prefetch
from django_reliable_jobs.worker.options import QueueSelection, parse_queues
from tests.unit.running.test_attempt import lease

# -- options


@pytest.mark.parametrize(
    ("queues", "exclude", "served", "refused", "caps"),
    [
        (None, None, ["a", "b"], [], {}),
        ("", "", ["a", "b"], [], {}),
        ("a", None, ["a"], ["b"], {}),
        (" a , b:3 ", None, ["a", "b"], ["c"], {"b": 3}),
        ("a,a:2,", None, ["a"], ["b"], {"a": 2}),
        (None, "a, b", ["c"], ["a", "b"], {}),
        ("a,b", "c", ["a", "b"], ["c", "d"], {}),
    ],
)
def test_queues_are_parsed(
    queues: str | None, exclude: str | None, served: list[str], refused: list[str], caps: dict[str, int]
) -> None:
    found = parse_queues(queues, exclude)
    assert all(queue in found for queue in served)
    assert not any(queue in found for queue in refused)
    assert found.caps == caps


@pytest.mark.parametrize("queues", ["a:0", "a:-1", "a:", "a:x", "a:1.5", ":2", "a b", "x" * 101, "a:1:2"])
def test_what_is_no_list_of_queues_is_refused(queues: str) -> None:
    with pytest.raises(ValueError, match=r"queue"):
        parse_queues(queues)


def test_a_queue_is_not_served_and_excluded_at_once() -> None:
    with pytest.raises(ValueError, match="'a' is in --queues and in --exclude-queues"):
        parse_queues("a,b", "a")


# -- claiming


TEN, ELEVEN = datetime(2020, 1, 1, 10, tzinfo=UTC), datetime(2020, 1, 1, 11, tzinfo=UTC)


def claiming(queues: QueueSelection | None = None) -> ClaimPlan:
    made = ClaimPlan(queues or QueueSelection(), poll=5.0)
    work = [Work("mail", 0, -1.0, TEN), Work("default", 5, -2.0, ELEVEN), Work("later", 0, 3.0, ELEVEN)]
    made.looked(Look(work), cost=0.001)
    return made


def test_it_asks_where_a_look_has_found_due_jobs_and_from_the_first_of_them_on() -> None:
    wish = claiming().wish(4, 2, {})
    assert wish is not None
    assert {(pair.queue, pair.priority, pair.since) for pair in wish.pairs} == {
        ("mail", 0, TEN), ("default", 5, ELEVEN)}  # fmt: skip
    assert (wish.free, wish.ahead) == (4, 2)
    assert wish.window > 6


def test_it_looks_again_when_the_next_job_becomes_due() -> None:
    quiet = ClaimPlan(QueueSelection(), poll=5.0)
    quiet.looked(Look([Work("later", 0, 0.5, TEN)]), cost=0.001)
    assert not quiet.more
    assert 0 < quiet.look_at - time.monotonic() <= 0.5
    quiet.looked(Look([]), cost=0.001)
    assert 4 < quiet.look_at - time.monotonic() <= 5


def test_a_queue_at_its_cap_is_left_out_and_with_all_at_their_caps_there_is_nothing_to_ask() -> None:
    capped = claiming(parse_queues("mail:2,default:1"))
    wish = capped.wish(4, 0, {"default": 1})
    assert wish is not None
    assert [(pair.queue, pair.cap) for pair in wish.pairs] == [("mail", 2)]
    assert capped.wish(4, 0, {"default": 1, "mail": 2}) is None
    assert not capped.more, "or the engine would spin"
    capped.freed()
    assert capped.more


def test_without_caps_a_freed_slot_is_no_news() -> None:
    plain = claiming()
    plain.more = False
    plain.freed()
    assert not plain.more


def idle() -> ClaimPlan:
    """It knows of two pairs, and has asked in both in vain."""
    made = claiming()
    wish = made.wish(4, 0, {})
    assert wish is not None
    made.claimed(wish, Exchanged())
    assert not made.more
    return made


def pairs_of(wish: ClaimRequest | None) -> tuple[list[tuple[str, int]], bool]:
    assert wish is not None
    return [(pair.queue, pair.priority) for pair in wish.pairs], wish.light


def test_an_idle_worker_that_is_told_of_one_place_asks_there_and_for_its_free_slots_only() -> None:
    told = idle()
    told.told("mail", 3)
    told.told("mail", 3)
    wish = told.wish(4, 100, {}, settles=False)
    assert pairs_of(wish) == ([("mail", 3)], True)
    assert wish is not None
    assert (wish.free, wish.ahead, wish.window) == (4, 0, 4)
    leases = [lease(job_id=number, queue="mail", priority=3, run_at=TEN) for number in range(4)]
    told.claimed(wish, Exchanged(leases=leases, seen=[4]))
    assert told.more, "there may be more of them, which now may be taken ahead too"
    assert pairs_of(told.wish(4, 100, {}, settles=True)) == ([("mail", 0), ("default", 5), ("mail", 3)], False)


def test_an_idle_worker_that_is_told_of_several_places_asks_in_all() -> None:
    told = idle()
    told.told("mail", 3)
    told.told("default", 0)
    told.told("mail", 3)
    found, light = pairs_of(told.wish(4, 0, {}, settles=False))
    assert set(found) == {("mail", 0), ("default", 5), ("mail", 3), ("default", 0)}
    assert not light


@pytest.mark.parametrize(
    "reason", ["work is known elsewhere", "something is to be settled", "no slot is free", "a cap"]
)
def test_an_idle_workers_small_claim_is_for_idle_workers(reason: str) -> None:
    told = claiming() if reason == "work is known elsewhere" else idle()
    if reason == "a cap":
        told.queues = parse_queues("mail:9,default")
    told.told("mail", 3)
    free = 0 if reason == "no slot is free" else 4
    assert not pairs_of(told.wish(free, 9, {}, settles=reason == "something is to be settled"))[1]


def test_a_notification_for_a_queue_of_others_is_ignored() -> None:
    mine = ClaimPlan(parse_queues("mail"), poll=5.0)
    mine.told("default", 0)
    assert not mine.more
    mine.told("mail", 3)
    assert mine.more
    assert mine.wish(1, 0, {}) is not None


def test_where_rivals_hold_everything_it_looks_further() -> None:
    busy = claiming()
    wish = busy.wish(4, 0, {})
    assert wish is not None
    busy.claimed(wish, Exchanged(seen=[wish.window_of(pair) for pair in wish.pairs]))
    assert busy.more
    further = busy.wish(4, 0, {})
    assert further is not None
    assert further.pairs[0].window > wish.pairs[0].window
    busy.claimed(further, Exchanged(seen=[3, 0]))
    assert not busy.more


def test_where_rivals_hold_what_was_wanted_ahead_it_looks_further_but_does_not_ask_at_once() -> None:
    busy = claiming()
    windows = []
    for _ in range(9):
        wish = busy.wish(0, 100, {})
        assert wish is not None
        windows.append(wish.pairs[0].window)
        busy.claimed(
            wish,
            Exchanged(leases=[lease(queue="mail", priority=0)], seen=[wish.window_of(pair) for pair in wish.pairs]),
        )
        assert not busy.more
    assert windows[0] < windows[1] <= windows[-1] == 200
    for _ in range(40):
        busy.claimed(wish, Exchanged(seen=[wish.window_of(pair) - 1 for pair in wish.pairs]))
    again = busy.wish(0, 100, {})
    assert again is not None
    assert again.pairs[0].window == windows[0]


def test_the_next_claim_starts_where_the_last_one_ended() -> None:
    advanced = claiming()
    wish = advanced.wish(1, 0, {})
    assert wish is not None
    taken = lease(queue="mail", priority=0)
    advanced.claimed(wish, Exchanged(leases=[taken], seen=[1, 1]))
    assert advanced.more, "it got all that it asked for"
    again = advanced.wish(1, 0, {})
    assert again is not None
    assert {pair.queue: pair.since for pair in again.pairs} == {"mail": taken.run_at, "default": ELEVEN}


# -- prefetching


def test_slow_jobs_are_not_taken_ahead_and_short_ones_for_a_moment() -> None:
    ahead = Prefetch("auto", slots=8)
    assert ahead.ahead() == 0, "it knows nothing yet"
    ahead.took(0.001)
    assert ahead.ahead() == 400 or ahead.ahead() == min(MOST, 400)
    for _ in range(200):
        ahead.took(1.0)
    assert ahead.ahead() == 0


def test_nothing_is_taken_ahead_while_somebody_else_is_free() -> None:
    ahead = Prefetch("auto", slots=8)
    ahead.took(0.001)
    ahead.free_elsewhere = 1
    assert ahead.ahead() == 0


def test_a_job_that_takes_no_time_at_all_is_no_division_by_zero() -> None:
    ahead = Prefetch("auto", slots=8)
    ahead.took(0.0)
    assert ahead.ahead() == MOST


def test_a_number_is_obeyed() -> None:
    assert Prefetch(0, slots=8).ahead() == 0
    assert Prefetch(3, slots=8).ahead() == 3


# -- contact


def test_reaping_waits_for_one_lease_of_contact() -> None:
    contact = DatabaseContact(lease=0.2)
    assert contact.wait_for_reaping() > 0
    until = time.monotonic() + 10
    contact.made()
    while contact.wait_for_reaping() > 0 and time.monotonic() < until:
        contact.made()
    assert contact.wait_for_reaping() <= 0


@pytest.mark.parametrize(("lasted", "reach"), [(0, 0), (14, 0), (15, 0), (20, 5), (29, 14), (31, math.inf)])
def test_what_ran_out_when_its_owner_had_half_a_lease_to_extend_it_is_within_reach(lasted: float, reach: float) -> None:
    contact = DatabaseContact(lease=30)
    assert contact.reach() == 0
    contact.made()
    assert contact._since is not None
    contact._since -= lasted
    assert contact.reach() == pytest.approx(reach, abs=0.5)
    assert (contact.wait_for_reaping() <= 0) == (lasted >= 15)
    contact.lost()
    assert contact.reach() == 0


def test_lost_contact_begins_anew() -> None:
    contact = DatabaseContact(lease=0.05)
    contact.made()
    contact.lost()
    assert contact.wait_for_reaping() == 0.025
    contact.made()
    assert contact.wait_for_reaping() > 0


def test_a_gap_as_long_as_a_lease_begins_anew() -> None:
    """The process was stopped, or the machine suspended."""
    contact = DatabaseContact(lease=0.1)
    contact.made()
    contact._since = contact._last = elapsed() - 100
    assert contact.wait_for_reaping() == 0.05
    contact.made()
    assert contact.wait_for_reaping() > 0


# -- a host that is suspended: `time.monotonic()` stands still, the leases run out


@pytest.fixture
def suspend(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Have `elapsed()` go on by so many seconds."""
    asleep = [0.0]
    now = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: now(clock) + asleep[0])

    def add(seconds: float) -> None:
        asleep[0] += seconds

    return add


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the system has no such clock")
def test_after_a_suspension_contact_begins_anew_and_what_was_held_ahead_does_not_begin(
    suspend: Callable[[float], None],
) -> None:
    """Case P32."""
    contact, attempt = DatabaseContact(lease=30), Attempt(lease(), safe_until=elapsed() + 30)
    contact.made()
    suspend(29)
    contact.made()
    assert contact.wait_for_reaping() == pytest.approx(-14, abs=0.5)
    suspend(31)
    assert contact.wait_for_reaping() == 15
    contact.made()
    assert contact.reach() == 0
    attempt.start()
    assert attempt.stop_kind is LeaseLost


# -- the database's clock is set forward


def test_a_step_of_the_databases_clock_counts_as_lost_contact() -> None:
    """Case P21."""
    contact = DatabaseContact(lease=30)
    contact.made()
    assert contact._since is not None
    contact._since -= 100
    assert contact.may_reap() == (math.inf, -math.inf), "what time it is there is not known yet"
    assert contact.read_clock(5000.0, elapsed()) == 0.0
    reach, latest = contact.may_reap()
    assert reach == math.inf
    assert latest == pytest.approx(5000 + 30 / 4, abs=0.5), "what it cannot be yet"
    assert contact.read_clock(5031.0, elapsed()) == pytest.approx(31, abs=0.5)
    reach, latest = contact.may_reap()
    assert reach == 0
    assert latest == pytest.approx(5031 + 30 / 4, abs=0.5)


@pytest.mark.parametrize("clock", [4000.0, 4999.0, 5001.0, 5007.0])
def test_a_clock_that_is_set_back_or_corrected_a_little_is_no_lost_contact(clock: float) -> None:
    contact = DatabaseContact(lease=30)
    contact.made()
    contact.read_clock(5000.0, elapsed())
    assert contact._since is not None
    contact._since -= 100
    assert contact.read_clock(clock, elapsed()) == 0.0
    assert contact.reach() == math.inf


def test_a_slow_answer_is_no_step_of_the_clock(suspend: Callable[[float], None]) -> None:
    contact = DatabaseContact(lease=30)
    contact.made()
    contact.read_clock(5000.0, elapsed())
    asked = elapsed()
    suspend(20)
    assert contact.read_clock(5020.0, asked) == 0.0


# -- traces on a connection


@pytest.mark.parametrize(
    "statement",
    [
        "SET statement_timeout = 1", "set search_path to x", "  SET SESSION x = 1", "SET ROLE x", "SET TIME ZONE 'UTC'",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "RESET ALL", "LISTEN x", "LOAD 'x'",
        "PREPARE p AS SELECT 1", "CREATE TEMP TABLE x ()", "create temporary table x ()", "CREATE LOCAL TEMPORARY VIEW x",
        "SELECT 1 INTO TEMP x", "SELECT 1 INTO TEMPORARY TABLE x", "select set_config('x', 'y', false)",
        "SELECT pg_advisory_lock(1)", "SELECT pg_try_advisory_lock(1)", "SELECT pg_advisory_lock_shared(1)",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "/* a */ SET x = 1", "-- a\n  SET x = 1", "/* a\n b */-- c\nSET x = 1",
        "SELECT 1; SET x = 1", "SET LOCAL x = 1; /* b */ SET y = 2", "SELECT 1;\n\nSET x = 1;",
    ],
)  # fmt: skip
def test_a_statement_that_leaves_a_trace_is_seen(statement: str) -> None:
    assert leaves_a_trace(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1", "UPDATE x SET y = 1", "SET LOCAL statement_timeout = 1", "SET CONSTRAINTS ALL IMMEDIATE",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SELECT pg_advisory_xact_lock(1)", "INSERT INTO temperature (x)",
        "SELECT x FROM settings", "PREPARE TRANSACTION 'x'", "SAVEPOINT s1", "SELECT 'listen'", "/* SET x */ SELECT 1",
        "SELECT temp FROM x", "UPDATE x SET a = 1; SELECT 2",
    ],
)  # fmt: skip
def test_an_ordinary_statement_is_not(statement: str) -> None:
    assert not leaves_a_trace(statement)
