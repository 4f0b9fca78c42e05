"""Making up for a lot: in steps of a bounded size, each of which stays, at a cost that grows with what there is to do (C18)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction
from psycopg import ClientCursor

from django_reliable_jobs import job
from django_reliable_jobs.connections.own_connection import own_connection
from django_reliable_jobs.control.schedules import backfill
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.firing.runs import MOST_RUNS, runs_with_jobs
from django_reliable_jobs.models import CronRun, Job
from django_reliable_jobs.store import statements
from django_reliable_jobs.store.schedules import due as schedule_due
from django_reliable_jobs.store.schedules import fire as store
from django_reliable_jobs.store.schedules.fire import Fired, Firing
from django_reliable_jobs.worker.maintenance import scheduler as scheduler_module
from tests.support.fleet import wait_until
from tests.support.schedules.clock import SEARCH_PATH, DatabaseClock, utc
from tests.support.schedules.tools import NOOP, fired, outcomes, row, runs, schedule, short, sql, tick, worker
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)

DAYS_300 = {"misfire": "all", "catch_up_limit": 10_000, "catch_up_window": timedelta(days=301)}


@job(name="tests.keyed_by_fire_time", unique_key=lambda scheduled_for: f"{scheduled_for:%m-%d %H:%M}")
def keyed_by_fire_time(scheduled_for: datetime) -> None: ...


class Steps(list[tuple[int, datetime]]):
    """(runs, `fired_through`) of each statement that fired something."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    found = Steps()
    real = store.fire

    def fire(alias: str, worker: Any, firings: list[Firing], *, manual: bool = False) -> Fired:
        result = real(alias, worker, firings, manual=manual)
        found.append((sum(len(each.runs) for each in firings), max(each.fired_through for each in firings)))
        return result

    monkeypatch.setattr(store, "fire", fire)
    return found


@pytest.fixture
def as_a_worker(clock: DatabaseClock) -> Iterator[None]:
    """On a connection as the maintenance thread has it: statements are prepared, with generic plans."""
    of_the_tests = connections["default"]
    with own_connection("default", "test"):
        with connections["default"].cursor() as cursor:
            cursor.execute(f"SET search_path = {SEARCH_PATH}")
        yield
    connections["default"] = of_the_tests


def test_300_days_are_made_up_for_in_bounded_steps(clock: DatabaseClock, as_a_worker: None, steps: Steps) -> None:
    schedule("long", "*/30 * * * *", **DAYS_300)
    schedule("other")
    clock.advance(days=300)
    assert tick() > 0
    made = CronRun.objects.filter(name="long", outcome="enqueued")
    assert made.count() == Job.objects.filter(scheduled_for__isnull=False).count() - len(fired("other")) == 10_000
    [skipped] = runs("long", outcome="skipped_misfire")
    assert skipped.skipped_count == 300 * 48 - 10_000
    assert (row("long").fired_through, row("long").next_fire_at) == (clock.now, clock.now + timedelta(minutes=30))
    assert max(size for size, _ in steps) <= MOST_RUNS + 1
    throughs = [through for _, through in steps[1:]]
    assert len(throughs) == 10_000 / MOST_RUNS
    assert throughs == sorted(set(throughs)), "each step stays"


def test_the_others_are_fired_before_the_long_one_goes_on(clock: DatabaseClock, steps: Steps) -> None:
    schedule("long", "*/30 * * * *", **DAYS_300)
    clock.advance(days=300)
    scheduler = worker()
    assert scheduler.tick() == 0.0
    schedule("other", "@every 1")
    clock.advance(seconds=1)
    scheduler.tick()
    assert len(fired("other")) == 1
    assert 0 < len(fired("long")) <= 2 * MOST_RUNS


def test_60_schedules_with_the_default_limit_are_several_statements(clock: DatabaseClock, steps: Steps) -> None:
    for number in range(60):
        schedule(f"s{number}", "* * * * *", misfire="all")
    clock.advance(days=1)
    assert tick() > 0
    assert CronRun.objects.filter(outcome="enqueued").count() == Job.objects.count() == 60 * 100
    assert max(size for size, _ in steps) <= MOST_RUNS


def test_a_long_row_of_skipped_ones_is_one_run(clock: DatabaseClock, steps: Steps) -> None:
    schedule("report", "*/30 * * * *", overlap="skip", **DAYS_300)
    clock.advance(days=200)
    assert tick() > 0
    assert [each.outcome for each in runs()] == ["enqueued", "skipped_overlap"]
    assert runs()[1].skipped_count == 200 * 48 - 1
    assert runs()[1].skipped_through == clock.now
    assert len(steps) == 1


def test_cancel_running_makes_up_with_the_newest_of_any_number(clock: DatabaseClock) -> None:
    schedule("report", "*/30 * * * *", overlap="cancel_running", **DAYS_300)
    clock.advance(days=200)
    tick()
    assert [each.outcome for each in runs()] == ["skipped_overlap", "enqueued"]
    assert runs()[1].scheduled_for == clock.now


def work_of(count: int) -> int:
    """Rows that the nodes of the plan handle when so many runs are fired in one statement."""
    due = schedule_due.find("default", "report")
    assert due is not None
    times = [due.now + timedelta(seconds=n) for n in range(count)]
    firing = Firing(due, due.fired_through, None, runs_with_jobs(due, registry.find(NOOP), times))
    seen: dict[str, Any] = {}

    def explain(alias: str, name: str, params: dict[str, Any]) -> list[statements.Row]:
        # EXPLAIN of the statement itself would plan it for these parameters; workers run the generic plan.
        text, names = statements._positional(statements.load(name))
        values = ", ".join(["%s"] * len(names))
        with transaction.atomic(), ClientCursor(connection.connection) as cursor:
            cursor.execute(f"PREPARE fire AS {text}")
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE fire ({values})", [params[each] for each in names])
            found = cursor.fetchone()[0]
            cursor.execute("DEALLOCATE fire")
            transaction.set_rollback(True)
        seen["plan"] = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "run", explain)
        store.fire("default", None, [firing], manual=True)
    return sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Join Filter", 0)
                                + node.get("Rows Removed by Filter", 0))
        for node in _walk(seen["plan"])
    )  # fmt: skip


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


def test_the_statements_work_grows_with_the_runs_and_not_with_their_square(
    clock: DatabaseClock, as_a_worker: None
) -> None:
    schedule()
    few, many = work_of(300), work_of(3000)
    assert many < 15 * few, (few, many)
    assert many < 3000 * 30


def test_a_backfill_of_ten_thousand_is_several_statements(clock: DatabaseClock, steps: Steps) -> None:
    schedule("report", "* * * * *")
    began = time.monotonic()
    made = backfill("report", clock.now - timedelta(minutes=10_000), clock.now)
    print(f"backfill of 10,000: {time.monotonic() - began:.1f} s")
    assert len(made) == 10_000
    assert [size for size, _ in steps] == [MOST_RUNS] * (10_000 // MOST_RUNS)


# --- unique keys by fire time


@pytest.mark.parametrize("held", [1, 2, 10])
def test_only_a_fire_time_whose_own_key_is_held_is_skipped(clock: DatabaseClock, held: int) -> None:
    """P09."""
    for hour in range(held):
        keyed_by_fire_time.enqueue(utc(f"2026-07-01 {13 + hour}:00"))
    schedule(job="tests.keyed_by_fire_time", misfire="all")
    clock.advance(hours=10)
    assert tick() > 0
    assert [outcome for _, outcome in outcomes()] == ["skipped_overlap"] * held + ["enqueued"] * (10 - held)
    assert Job.objects.count() == 10
    assert row().fired_through == clock.now


def test_a_backfill_skips_only_the_fire_time_whose_own_key_is_held(clock: DatabaseClock, steps: Steps) -> None:
    """P09, by hand."""
    keyed_by_fire_time.enqueue(utc("2026-07-01 05:00"))
    schedule(job="tests.keyed_by_fire_time")
    assert len(backfill("report", clock.now - timedelta(hours=10), clock.now)) == 9
    assert [short(each.scheduled_for) for each in runs(outcome="skipped_overlap")] == ["07-01 05:00"]
    assert len(steps) == 1


def test_an_expired_holder_gives_its_key_up_in_a_backfill(clock: DatabaseClock) -> None:
    keyed_by_fire_time.using(expires=60).enqueue(utc("2026-07-01 05:00"))
    clock.advance(minutes=5)
    schedule(job="tests.keyed_by_fire_time")
    assert len(backfill("report", clock.now - timedelta(hours=10), clock.now)) == 10


# --- one schedule's trouble


@pytest.fixture
def slow_for_one(clock: DatabaseClock) -> Iterator[None]:
    """The INSERT of the jobs of the schedule `report` takes for ever."""
    sql("""
        CREATE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN IF NEW.kwargs ->> 'number' = '13' THEN PERFORM pg_sleep(600); END IF; RETURN NEW; END $$""")
    sql("CREATE TRIGGER dawdle BEFORE INSERT ON django_reliable_jobs_job FOR EACH ROW EXECUTE FUNCTION public.dawdle()")
    yield
    sql("DROP TRIGGER dawdle ON django_reliable_jobs_job")
    sql("DROP FUNCTION public.dawdle")


def sleepers() -> int:
    return int(
        sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()")[0][0]
    )


def test_one_whose_fire_takes_for_ever_holds_up_nobody_for_long(
    clock: DatabaseClock, slow_for_one: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Together with others it takes until the connection is cut; from then on it is alone, bounded, and rarely tried."""
    monkeypatch.setattr(scheduler_module, "BOUND", 0.5)
    for name in ("before", "report", "zealous"):
        schedule(name, "* * * * *", kwargs={"number": 13 if name == "report" else 1})
    clock.advance(minutes=1)
    scheduler = worker()
    with Session() as watchdog:
        pid = sql("SELECT pg_backend_pid()")[0][0]
        watchdog.sql("SET search_path = public")
        answer = watchdog.start(
            lambda: sql(
                "DO $$ BEGIN FOR i IN 1..3000 LOOP PERFORM pg_stat_clear_snapshot(); IF EXISTS (SELECT FROM pg_stat_activity"
                f" WHERE pid = {pid} AND wait_event = 'PgSleep') THEN PERFORM pg_terminate_backend({pid}); EXIT; END IF;"
                " PERFORM pg_sleep(0.02); END LOOP; END $$"
            )
        )
        with pytest.raises(OperationalError):
            scheduler.tick()
        answer.result(120)
    connections["default"].close()
    sql(f"SET search_path = {SEARCH_PATH}")
    for _ in range(6):
        clock.advance(minutes=1)
        began = time.monotonic()
        tick(scheduler)
        print(f"tick: {time.monotonic() - began:.2f} s")
    assert len(fired("before")) == len(fired("zealous")) >= 6
    assert not fired()
    tries = [line for line in caplog.messages if line.startswith("schedule report could not be fired")]
    assert len(tries) == 1
    assert "statement timeout" in tries[0]
    assert sleepers() == 0, "the server has given it up too"


def test_schedules_that_cannot_be_fired_do_not_use_up_the_window(
    clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """More of them than a look takes, all older than the one that can. Of them all a minute's log has a few lines."""
    monkeypatch.setattr(schedule_due, "WITHIN", 20)
    sql("ALTER TABLE django_reliable_jobs_job ADD CONSTRAINT t CHECK (kwargs ->> 'number' IS DISTINCT FROM '13')")
    try:
        schedule("report", "* * * * *", kwargs={"number": 13})
        sql(
            "INSERT INTO django_reliable_jobs_cronschedule (name, job_name, expression, timezone, args, kwargs, source,"
            " misfire, misfire_grace, catch_up_window, catch_up_limit, overlap, jitter, paused, broken, version,"
            " fired_through, next_fire_at, resumed_at) SELECT name || n, job_name, expression, timezone, args, kwargs, source,"
            " misfire, misfire_grace, catch_up_window, catch_up_limit, overlap, jitter, paused, broken, version,"
            " fired_through, next_fire_at - n * interval '1 s', resumed_at"
            " FROM django_reliable_jobs_cronschedule, generate_series(1, 40) AS n"
        )
        clock.advance(minutes=1)
        schedule("good", "* * * * *")
        clock.advance(minutes=1)
        scheduler = worker()
        wait_until(lambda: scheduler.tick() >= 0 and fired("good"), 60)
        assert sum("could not be fired" in line for line in caplog.messages) <= 10
    finally:
        sql("ALTER TABLE django_reliable_jobs_job DROP CONSTRAINT t")


@pytest.mark.parametrize(
    "change",
    [
        "pause_after_failures = -1", "pause_after_failures = 2147483647", "catch_up_limit = 2147483647",
        "catch_up_limit = -2147483648", "jitter = 'NaN'", "jitter = 1e300", "jitter = 'infinity'",
        "catch_up_window = 1e300", "misfire_grace = 1e300", "fired_through = '4713-01-01 BC'",
        "fired_through = '0001-01-01Z'", "fired_through = '0001-01-01Z', misfire = 'all', catch_up_limit = 10000",
        "fired_through = '1970-01-01Z', expression = '@every 1', misfire = 'all'",
        "fired_through = '0001-01-01Z', expression = '59 23 29 2 mon', timezone = 'Africa/Casablanca'",
        "starts_at = '294276-01-01Z'", "starts_at = '4713-01-01 BC'", "ends_at = 'infinity'", "ends_at = '0001-01-01Z'",
        "ends_at = '9999-12-31 23:59:59.999999Z'", "starts_at = '0001-01-01 00:00Z'", "waiting_for = '-infinity'",
        "waiting_for = 'infinity'", "resumed_at = '-infinity', pause_after_failures = 3", "timezone = '../../etc/passwd'",
        "timezone = ''", "timezone = 'America'", "version = 2147483647", "expression = ''",
        "expression = repeat('1,', 240) || '1 * * * *'", "args = '\"a\"'", "kwargs = '{\"no_such\": 1}'",
        "args = '[{\"__type__\": \"nothing\"}]'", "next_fire_at = '-infinity'", "next_fire_at = '4713-01-01 BC'",
        "job_name = 'tests.keyed_by_fire_time'",
    ],
)  # fmt: skip
def test_whatever_stands_in_one_row_the_others_are_fired_soon(clock: DatabaseClock, change: str) -> None:
    """C18: values that only raw SQL writes, at both ends of each column's type."""
    for name in ("before", "report", "zealous"):
        schedule(name, "* * * * *")
    sql(f"UPDATE django_reliable_jobs_cronschedule SET {change} WHERE name = 'report'")
    scheduler = worker()
    began = time.monotonic()
    for _ in range(3):
        clock.advance(minutes=1)
        assert tick(scheduler) > 0, "no hot loop"
    took = time.monotonic() - began
    print(f"{change}: {took:.2f} s")
    assert len(fired("before")) == len(fired("zealous")) == 3
    assert took < 20


def test_a_bad_key_of_many_fire_times_is_one_line(clock: DatabaseClock, caplog: pytest.LogCaptureFixture) -> None:
    @job(name="tests.bad_key_of_many", unique_key=lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    def bad_key() -> None: ...

    schedule(job="tests.bad_key_of_many", misfire="all")
    clock.advance(hours=10)
    tick()
    assert len(runs(outcome="error")) == 10
    assert [line for line in caplog.messages if ": no job for" in line] == [
        "schedule report: no job for 2026-07-01 13:00:00+00:00 (and 9 more fire times): ZeroDivisionError: division by zero"
    ]
