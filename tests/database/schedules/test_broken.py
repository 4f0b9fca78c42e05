"""A schedule that cannot be computed is marked, said once, and never stops the others (C14)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from django_reliable_jobs import job
from django_reliable_jobs.control.schedules import run_schedule
from django_reliable_jobs.definitions.schedule import cron
from django_reliable_jobs.models import CronSchedule, Job
from tests.support.schedules.clock import DatabaseClock, utc
from tests.support.schedules.tools import fired, row, schedule, sql, tick, worker

pytestmark = pytest.mark.django_db

BY_HAND = {
    "zone": "timezone = 'America/New_Yrok'",
    "expression": "expression = '61 * * * *'",
    "never": "expression = '0 0 30 2 *'",
    "nonsense": "expression = 'whenever'",
    "period": "expression = '@every -5m'",
    "misfire": "misfire = 'perhaps'",
    "overlap": "overlap = 'maybe'",
    "grace": "misfire_grace = -1",
    "not a number": "catch_up_window = 'NaN'",
    "limit": "catch_up_limit = 0",
    "args": "args = '{}'",
    "kwargs": "kwargs = '[1]'",
    "end before start": "starts_at = '2026-01-01', ends_at = '2025-01-01'",
    "an instant that no host knows": "starts_at = 'infinity'",
    "before all time": "fired_through = '-infinity'",
}


@pytest.mark.parametrize("change", BY_HAND.values(), ids=BY_HAND)
def test_it_is_marked_and_the_others_go_on(clock: DatabaseClock, caplog: pytest.LogCaptureFixture, change: str) -> None:
    for name in ("before", "report", "zealous"):
        schedule(name, "* * * * *")
    sql(f"UPDATE django_reliable_jobs_cronschedule SET {change} WHERE name = 'report'")
    workers = [worker(), worker()]
    for _ in range(3):
        clock.advance(minutes=1)
        for one in workers:
            assert tick(one) > 0, "no hot loop"
    assert len(fired("before")) == len(fired("zealous")) == 3
    assert not fired()
    [[problem]] = sql("SELECT broken FROM django_reliable_jobs_cronschedule WHERE name = 'report'")
    assert problem
    said = [line for line in caplog.messages if line.startswith("schedule report")]
    assert said == [f"schedule report cannot be computed, it is marked broken: {problem}"], "once"


def test_an_edit_mends_it(clock: DatabaseClock) -> None:
    schedule()
    sql("UPDATE django_reliable_jobs_cronschedule SET timezone = 'Nowhere', fired_through = 'infinity'")
    clock.set(utc("2026-07-01 15:30"))
    tick()
    assert row_is_broken()
    schedule(misfire="all")
    assert not row_is_broken()
    tick()
    assert not fired(), "what it missed while it was broken is not caught up on"
    clock.set(utc("2026-07-01 16:00"))
    tick()
    assert fired() == ["07-01 16:00"]


def row_is_broken() -> bool:
    return bool(sql("SELECT broken <> '' FROM django_reliable_jobs_cronschedule WHERE name = 'report'")[0][0])


def test_the_code_mends_its_own_row(clock: DatabaseClock, caplog: pytest.LogCaptureFixture) -> None:
    @cron("0 * * * *", name="report", timezone="UTC")
    @job(name="tests.broken_by_hand")
    def handler() -> None: ...

    scheduler = worker()
    tick(scheduler)
    sql(
        "UPDATE django_reliable_jobs_cronschedule SET timezone = 'America/New_Yrok', next_fire_at = '2026-07-01 12:00Z'"
    )
    tick(scheduler)
    assert row().broken
    scheduler._sync._look_at = 0.0  # half a minute later
    tick(scheduler)
    assert (row().broken, row().timezone) == ("", "UTC")
    clock.set(utc("2026-07-01 13:00"))
    tick(scheduler)
    assert fired() == ["07-01 13:00"]


def test_a_job_that_this_worker_does_not_know_is_left_alone(clock: DatabaseClock) -> None:
    """Another service's schedules, whose workers are away: more than a look takes."""
    schedule("mine", "* * * * *")
    schedule("theirs")
    theirs = CronSchedule.objects.get(name="theirs")
    others = [
        CronSchedule(
            name=f"theirs {n}",
            job_name="billing.invoice",
            expression="* * * * *",
            fired_through=clock.now,
            resumed_at=clock.now,
            next_fire_at=clock.now - timedelta(seconds=n),
        )
        for n in range(1500)
    ]
    CronSchedule.objects.bulk_create(others)
    CronSchedule.objects.filter(pk=theirs.pk).update(job_name="billing.invoice")
    clock.advance(minutes=1)
    scheduler = worker()
    assert tick(scheduler) > 0.9, "it does not spin"
    assert fired("mine") == ["07-01 12:01"]
    assert Job.objects.count() == 1
    assert not CronSchedule.objects.exclude(broken="").exists()


def test_a_job_that_nobody_seems_to_know_is_said(clock: DatabaseClock, caplog: pytest.LogCaptureFixture) -> None:
    schedule()
    CronSchedule.objects.update(job_name="shop.gone_for_good")
    clock.advance(hours=2)
    tick()
    assert "no job is named 'shop.gone_for_good' here" in caplog.text


def test_a_broken_one_can_still_be_run_by_hand(clock: DatabaseClock) -> None:
    schedule()
    CronSchedule.objects.update(expression="61 * * * *", broken="it is")
    assert run_schedule("report") == Job.objects.get().pk


@pytest.mark.django_db(transaction=True)
def test_one_whose_job_the_database_refuses_does_not_stop_the_others(
    clock: DatabaseClock, caplog: pytest.LogCaptureFixture
) -> None:
    """C20: a trigger of the project's refuses the job's INSERT. Nothing is recorded, and it is tried again."""
    for name in ("before", "report", "zealous"):
        schedule(name, kwargs={"number": 13 if name == "report" else 1})
    with connection.cursor() as cursor:
        cursor.execute("""
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN IF NEW.kwargs ->> 'number' = '13' THEN RAISE 'not thirteen'; END IF; RETURN NEW; END $$""")
        cursor.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON django_reliable_jobs_job FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    try:
        clock.set(utc("2026-07-01 13:00"))
        scheduler = worker()
        assert tick(scheduler) > 0
        assert tick(scheduler) > 0
        assert fired("before") == fired("zealous") == ["07-01 13:00"]
        assert not fired()
        assert [line for line in caplog.messages if line.startswith("schedule report")] == [
            "schedule report could not be fired, it is tried again: not thirteen"
        ]
    finally:
        sql("DROP TRIGGER refuse ON django_reliable_jobs_job")
        sql("DROP FUNCTION refuse")
    clock.advance(seconds=20)
    tick(scheduler)
    assert fired() == ["07-01 13:00"]
