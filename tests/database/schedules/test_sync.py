"""Rows follow the code, through rolling deploys, rollbacks, and services that share a database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_reliable_jobs.control.schedules import save_schedule
from django_reliable_jobs.definitions import schedule as schedule_definitions
from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.definitions.schedule import cron, every
from django_reliable_jobs.models import CronSchedule, ScheduleRelease
from django_reliable_jobs.worker.maintenance import schedule_sync
from django_reliable_jobs.worker.maintenance.schedule_sync import ALIVE, BREAK, EVERY
from tests.support.schedules.tools import row, sql
from tests.support.schedules.versions import Monotonic, Worker, age, live, lose_the_current, rows, synced, synced_too
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db


def test_a_new_worker_writes_what_its_code_says() -> None:
    Worker(daily="0 6 * * *", often="*/5 * * * *").look()
    assert rows() == {"daily": "0 6 * * *", "often": "*/5 * * * *"}
    assert (row("daily").source, row("daily").job_name) == ("shop", "tests.synced")
    assert row("daily").next_fire_at is not None


def test_a_look_that_finds_all_as_it_should_be_writes_no_schedule() -> None:
    worker = Worker(daily="0 6 * * *")
    worker.look()
    before = sql("SELECT xmin, ctid FROM django_reliable_jobs_cronschedule")
    worker.look()
    assert sql("SELECT xmin, ctid FROM django_reliable_jobs_cronschedule") == before


def test_a_newer_version_is_adopted_at_once_and_an_older_one_does_not_come_back(monotonic: Monotonic) -> None:
    old = Worker(daily="0 6 * * *", gone="0 1 * * *")
    old.look()
    new = Worker(daily="0 7 * * *", added="0 2 * * *")
    new.look()
    assert rows() == {"daily": "0 7 * * *", "added": "0 2 * * *"}
    live(monotonic, 2 * ALIVE, old, new)
    another_old = Worker(daily="0 6 * * *", gone="0 1 * * *")
    another_old.look()
    live(monotonic, 2 * ALIVE, old, another_old, new)
    assert rows() == {"daily": "0 7 * * *", "added": "0 2 * * *"}


def test_a_rollback_is_adopted_when_the_newer_ones_are_gone(monotonic: Monotonic) -> None:
    old, new = Worker(daily="0 6 * * *"), Worker(daily="0 7 * * *")
    old.look()
    new.look()
    back = Worker(daily="0 6 * * *")
    live(monotonic, ALIVE + 2 * EVERY, new, back)
    assert rows() == {"daily": "0 7 * * *"}
    live(monotonic, ALIVE - EVERY, back)
    assert rows() == {"daily": "0 7 * * *"}, "one that is not seen for a while may be busy"
    live(monotonic, 3 * EVERY, back)
    assert rows() == {"daily": "0 6 * * *"}
    live(monotonic, ALIVE + 2 * EVERY, back)
    Worker(daily="0 7 * * *").look()
    assert rows() == {"daily": "0 6 * * *"}, "now the other one is the older"


def test_an_outage_is_no_rollback(monotonic: Monotonic) -> None:
    """Nobody could be seen for an hour. Whoever comes back first must not take the newer one for gone."""
    old, new = Worker(daily="0 6 * * *"), Worker(daily="0 7 * * *")
    old.look()
    new.look()
    live(monotonic, ALIVE + 2 * EVERY, old, new)
    monotonic.now += 3600
    age(3600)
    old.look()
    monotonic.now += EVERY
    age(EVERY)
    old.look()
    new.look()
    live(monotonic, 2 * ALIVE, old, new)
    assert rows() == {"daily": "0 7 * * *"}


@pytest.mark.parametrize("outage", [10.0, BREAK - 1, BREAK, BREAK + 20, ALIVE])
def test_no_outage_of_any_length_looks_like_a_rollback(monotonic: Monotonic, outage: float) -> None:
    """At its worst: the newer one looked long before it, the older one just before, and is the first to look again."""
    old, new = Worker(daily="0 6 * * *"), Worker(daily="0 7 * * *")
    old.look()
    new.look()
    live(monotonic, 2 * ALIVE, new, old)
    longest = 1.2 * EVERY
    monotonic.now += longest
    age(longest)
    old.look()
    monotonic.now += outage
    age(outage)
    old.look()
    assert rows() == {"daily": "0 7 * * *"}


@pytest.mark.parametrize("stop", [BREAK + 1, 3600.0])
def test_a_worker_that_stood_still_between_its_look_and_the_lock_takes_nothing_back(
    monotonic: Monotonic, monkeypatch: pytest.MonkeyPatch, stop: float
) -> None:
    """It saw that the newer version was gone, slept, and the rest of the fleet was not to be seen either."""
    old, new = Worker(daily="0 6 * * *"), Worker(daily="0 7 * * *")
    old.look()
    new.look()
    live(monotonic, ALIVE + EVERY, old, new)
    lose_the_current(ALIVE + 1)
    real = schedule_sync.rows.lock

    def late(alias: str) -> bool:
        monotonic.now += stop
        age(stop)
        return real(alias)

    with monkeypatch.context() as patch:
        patch.setattr(schedule_sync.rows, "lock", late)
        assert old.look()
    assert rows() == {"daily": "0 7 * * *"}
    live(monotonic, ALIVE + EVERY, old)
    assert rows() == {"daily": "0 6 * * *"}


def test_a_newer_version_that_comes_back_before_the_lock_stays_the_current_one(
    monotonic: Monotonic, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Worker(daily="0 6 * * *"), Worker(daily="0 7 * * *")
    old.look()
    new.look()
    live(monotonic, ALIVE + EVERY, old, new)
    lose_the_current(ALIVE + 1)
    real = schedule_sync.rows.lock

    def after_the_other(alias: str) -> bool:
        ScheduleRelease.objects.update(seen_at=timezone.now())
        return real(alias)

    with monkeypatch.context() as patch:
        patch.setattr(schedule_sync.rows, "lock", after_the_other)
        old.look()
    assert rows() == {"daily": "0 7 * * *"}


def test_services_with_different_apps_leave_each_other_alone(monotonic: Monotonic) -> None:
    shop = Worker(daily="0 6 * * *")
    billing = Worker("billing", ("billing",), invoices="0 1 * * *")
    shop.look()
    billing.look()
    live(monotonic, 2 * ALIVE, shop, billing)
    assert rows() == {"daily": "0 6 * * *", "invoices": "0 1 * * *"}
    Worker("billing", ("billing",), invoices="0 2 * * *").look()
    newer_shop = Worker(daily="0 9 * * *")
    newer_shop.look()
    assert rows() == {"daily": "0 9 * * *", "invoices": "0 2 * * *"}
    back = Worker(daily="0 6 * * *")
    live(monotonic, 2 * ALIVE, back, billing)
    assert rows() == {"daily": "0 6 * * *", "invoices": "0 1 * * *"}, "each rolls back for itself"


def test_two_services_that_give_one_name_to_two_schedules_do_not_take_turns(
    monotonic: Monotonic, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Worker(daily="0 6 * * *")
    billing = Worker("billing", ("billing",), daily="0 1 * * *")
    shop.look()
    billing.look()
    versions = set()
    for _ in range(5):
        live(monotonic, EVERY, shop, billing)
        versions.add(row("daily").version)
    assert rows() == {"daily": "0 6 * * *"}
    assert len(versions) == 1
    assert "schedule daily of billing is defined by shop too, whose it stays" in caplog.text
    live(monotonic, 2 * ALIVE, billing)
    assert rows() == {"daily": "0 1 * * *"}, "until the other service is gone"


def test_the_last_schedule_of_an_app_can_be_taken_out(monotonic: Monotonic) -> None:
    old = Worker(daily="0 6 * * *")
    old.look()
    new = Worker()
    new.look()
    assert rows() == {}
    live(monotonic, ALIVE + 2 * EVERY, old, new)
    assert rows() == {}, "and the older version does not bring it back"


def test_a_version_without_schedules_is_a_version_like_any_other(monotonic: Monotonic) -> None:
    """U02: an old worker deleted the first schedule of its app, and it came back without the fire times between."""
    old = Worker()
    old.look()
    assert list(ScheduleRelease.objects.values_list("source", flat=True)) == ["shop"]
    new = Worker(daily="0 6 * * *")
    new.look()
    version = row("daily").version
    live(monotonic, 2 * ALIVE, old, Worker(), new)
    assert (rows(), row("daily").version) == ({"daily": "0 6 * * *"}, version)
    live(monotonic, 2 * ALIVE, old)
    assert rows() == {}, "a rollback"


def test_a_rollback_is_adopted_by_workers_that_are_recycled_all_the_time(monotonic: Monotonic) -> None:
    """P28: no process of the older version lives for as long as it takes."""
    Worker(daily="0 6 * * *").look()
    new = Worker(daily="0 7 * * *")
    new.look()
    live(monotonic, ALIVE, new, Worker(daily="0 6 * * *"))
    for _ in range(round(ALIVE / EVERY) - 1):
        live(monotonic, EVERY, Worker(daily="0 6 * * *"))
        assert rows() == {"daily": "0 7 * * *"}
    live(monotonic, 2 * EVERY, Worker(daily="0 6 * * *"))
    assert rows() == {"daily": "0 6 * * *"}


def test_people_and_code_what_is_whose(caplog: pytest.LogCaptureFixture) -> None:
    save_schedule("theirs", "tests.synced", "0 3 * * *")
    save_schedule("daily", "tests.synced", "0 3 * * *")
    Worker(daily="0 6 * * *").look()
    assert rows() == {"theirs": "0 3 * * *", "daily": "0 6 * * *"}
    assert "schedule daily was made by a person; the code of shop defines it now" in caplog.text
    Worker().look()
    assert rows() == {"theirs": "0 3 * * *"}


def test_what_somebody_did_to_the_rows_by_hand_is_put_right() -> None:
    worker = Worker(daily="0 6 * * *", other="0 7 * * *")
    worker.look()
    sql("UPDATE django_reliable_jobs_cronschedule SET expression = '0 8 * * *' WHERE name = 'daily'")
    sql("DELETE FROM django_reliable_jobs_cronschedule WHERE name = 'other'")
    worker.look()
    assert rows() == {"daily": "0 6 * * *", "other": "0 7 * * *"}


def test_a_sync_does_not_move_a_schedule_that_it_does_not_change() -> None:
    Worker(daily="0 6 * * *", other="0 7 * * *").look()
    before = CronSchedule.objects.values().get(name="other")
    Worker(daily="0 9 * * *", other="0 7 * * *").look()
    assert CronSchedule.objects.values().get(name="other") == before


@pytest.mark.django_db(transaction=True)
def test_one_worker_at_a_time_and_the_others_come_back_later() -> None:
    worker = Worker(daily="0 6 * * *")
    with Session() as somebody:
        somebody.begin()
        somebody.sql("SELECT pg_advisory_xact_lock(hashtextextended('django_reliable_jobs.schedules', 0))")
        assert not worker.look()
        assert rows() == {}
        somebody.commit()
    assert worker.look()
    assert rows() == {"daily": "0 6 * * *"}


@pytest.mark.django_db(transaction=True)
def test_a_look_with_nothing_to_change_opens_no_transaction() -> None:
    """A process that is stopped in the middle of one keeps migrations waiting."""
    worker, same = Worker(daily="0 6 * * *"), Worker(daily="0 6 * * *")
    with CaptureQueriesContext(connection) as queries:
        worker.look()
    assert "BEGIN" in [each["sql"] for each in queries]
    with CaptureQueriesContext(connection) as queries:
        same.look()
    assert queries.captured_queries
    assert "BEGIN" not in [each["sql"] for each in queries]


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_stands_still_while_it_writes_the_rows_keeps_no_other_from_its_look() -> None:
    worker = Worker(daily="0 6 * * *")
    worker.look()
    seen = ScheduleRelease.objects.get().seen_at
    with Session() as stopped:
        stopped.begin()
        stopped.sql("SELECT pg_advisory_xact_lock(hashtextextended('django_reliable_jobs.schedules', 0))")
        stopped.sql("UPDATE django_reliable_jobs_schedulerelease SET activated_at = clock_timestamp()")
        assert worker.look()
        assert ScheduleRelease.objects.get().seen_at == seen
        stopped.rollback()
    ScheduleRelease.objects.update(seen_at=seen - timedelta(seconds=10))
    assert worker.look()
    assert ScheduleRelease.objects.get().seen_at > seen


@pytest.mark.django_db(transaction=True)
def test_a_row_that_somebody_has_locked_does_not_keep_the_worker_from_firing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Worker(daily="0 6 * * *").look()
    newer = Worker(daily="0 7 * * *", other="0 8 * * *")
    with Session() as admin, newer.code():
        admin.begin()
        admin.sql("SELECT FROM django_reliable_jobs_cronschedule FOR UPDATE")
        newer.sync.when_due()
        assert rows() == {"daily": "0 6 * * *"}, "all or nothing"
        assert "somebody has a row locked" in caplog.text
        admin.rollback()
        newer.sync._look_at = 0.0
        newer.sync.when_due()
    assert rows() == {"daily": "0 7 * * *", "other": "0 8 * * *"}


def test_an_older_worker_does_not_judge_a_newer_row(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = Worker(daily="0 6 * * *"), Worker(daily="0 7 * * *")
    old.look()
    assert old.sync.may_judge("shop")
    new.look()
    old.look()
    assert new.sync.may_judge("shop")
    assert not old.sync.may_judge("shop")
    assert not old.sync.may_judge("billing")
    assert old.sync.may_judge(""), "a person's: everybody's"


@pytest.mark.parametrize(
    "change",
    [
        {"misfire": "all"}, {"overlap": "skip"}, {"jitter": 1}, {"kwargs": {"number": 1}}, {"catch_up_limit": 3},
        {"misfire_grace": 1}, {"catch_up_window": 1}, {"pause_after_failures": 2}, {"timezone": "Asia/Kathmandu"},
    ],
    ids=str,
)  # fmt: skip
def test_any_change_makes_another_fingerprint_and_nothing_else_does(change: dict[str, Any]) -> None:
    def fingerprint(target: JobDefinition = synced, **options: Any) -> str:
        schedule_definitions._by_name.clear()
        options = {"timezone": "UTC"} | options
        cron("0 6 * * *", name="b", **options)(target)
        every(minutes=5, name="a")(synced_too)
        return schedule_definitions.fingerprint(schedule_definitions.all_schedules())

    first = fingerprint()
    schedule_definitions._by_name.clear()
    every(300, name="a")(synced_too)
    cron("0 6 * * *", name="b", timezone="UTC")(synced)
    assert schedule_definitions.fingerprint(schedule_definitions.all_schedules()) == first, "the order does not matter"
    assert fingerprint(**change) != first
    assert fingerprint(synced_too) != first
