"""What people do to schedules: make their own, run now, backfill; and what they cannot do to those in code."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from django_reliable_jobs import AlreadyEnqueued, PayloadError, ReliableJobsError, UnknownJob, job
from django_reliable_jobs.control.schedules import (
    ScheduleOwnedByCode,
    UnknownSchedule,
    backfill,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    run_schedule,
    save_schedule,
)
from django_reliable_jobs.models import CronRun, CronSchedule, Job
from django_reliable_jobs.schedules import ScheduleError
from tests.support.schedules.clock import DatabaseClock, utc
from tests.support.schedules.tools import fired, outcomes, row, runs, schedule, short, sql, tick

pytestmark = pytest.mark.django_db


@job(name="tests.only_one", unique_key="only one")
def only_one() -> None: ...


@job(name="tests.by_fire_time")
def by_fire_time(what: str, *, scheduled_for: datetime) -> None: ...


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "expression": ({"expression": "61 * * * *"}, ScheduleError, "minute"),
    "never": ({"expression": "0 0 30 2 *"}, ScheduleError, "never"),
    "zone": ({"timezone": "America/New_Yrok"}, ScheduleError, "America/New_York"),
    "seconds": ({"expression": "*/30 * * * * *"}, ScheduleError, "field"),
    "job": ({"job": "os.system"}, UnknownJob, "os.system"),
    "arguments": ({"args": [1, 2, 3]}, TypeError, "too many"),
    "payload": ({"args": [{1}]}, PayloadError, "number"),
    "misfire": ({"misfire": "perhaps"}, ScheduleError, "misfire"),
    "overlap": ({"overlap": "perhaps"}, ScheduleError, "overlap"),
    "failures": ({"pause_after_failures": 0}, ScheduleError, "pause_after_failures"),
    "name": ({"name": ""}, ScheduleError, "name"),
    "long name": ({"name": "x" * 201}, ScheduleError, "200"),
    "naive start": ({"starts_at": datetime(2026, 1, 1)}, ScheduleError, "aware"),
    "end before start": (
        {"starts_at": utc("2026-01-02 00:00"), "ends_at": utc("2026-01-01 00:00")}, ScheduleError, "ends_at",
    ),
    "an option that is none": ({"misfires": "all"}, TypeError, "misfires"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "error", "says"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_with_a_reason(options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        schedule(**options)
    assert not CronSchedule.objects.exists()


def test_a_schedule_is_made_and_changed(clock: DatabaseClock) -> None:
    made = save_schedule("report", "probes.noop", "0 9 * * mon-fri", timezone="Asia/Ho_Chi_Minh", kwargs={"number": 1})
    assert (made.source, made.version, made.next_fire_at) == ("", 1, utc("2026-07-02 02:00"))
    changed = save_schedule("report", "probes.noop", "@every 90m")
    assert (changed.pk, changed.expression, changed.kwargs, changed.version) == (made.pk, "@every 5400", {}, 2)


def test_the_fire_time_is_not_asked_for(clock: DatabaseClock) -> None:
    schedule(job="tests.by_fire_time", args=["stock"])
    with pytest.raises(TypeError):
        schedule(job="tests.by_fire_time")


@pytest.mark.parametrize("verb", [pause_schedule, resume_schedule, run_schedule])
def test_a_schedule_that_is_not_there(verb: Callable[[str], object]) -> None:
    with pytest.raises(UnknownSchedule, match="reprot"):
        verb("reprot")
    with pytest.raises(UnknownSchedule):
        backfill("reprot", utc("2026-01-01 00:00"), utc("2026-01-02 00:00"))


def test_those_in_code_can_only_be_paused_and_run(clock: DatabaseClock) -> None:
    schedule()
    CronSchedule.objects.update(source="probes")
    with pytest.raises(ScheduleOwnedByCode, match="'probes'"):
        schedule(expression="* * * * *")
    with pytest.raises(ScheduleOwnedByCode):
        delete_schedule("report")
    assert row().expression == "0 * * * *"
    assert pause_schedule("report")
    assert run_schedule("report")
    assert resume_schedule("report")


def test_what_an_app_left_behind_that_is_not_installed_can_be_deleted(clock: DatabaseClock) -> None:
    schedule()
    CronSchedule.objects.update(source="uninstalled")
    assert delete_schedule("report")


# --- run now


def test_run_now_makes_a_job_of_this_moment_and_leaves_the_schedule_alone(clock: DatabaseClock) -> None:
    schedule(kwargs={"number": 4}, overlap="skip")
    before = CronSchedule.objects.values().get()
    clock.advance(seconds=12.5)
    first = run_schedule("report")
    made = Job.objects.get()
    assert (made.pk, made.kwargs, made.scheduled_for, made.run_at) == (first, {"number": 4}, clock.now, clock.now)
    [run] = runs()
    assert (run.manual, run.outcome, run.job_id, run.fired_by) == (True, "enqueued", first, None)
    clock.advance(seconds=1)
    assert run_schedule("report") != first, "whatever is unfinished"
    assert CronSchedule.objects.values().get() == before


def test_run_now_works_while_it_is_paused(clock: DatabaseClock) -> None:
    schedule()
    pause_schedule("report")
    run_schedule("report")
    assert row().paused


@pytest.mark.django_db(transaction=True)
def test_run_now_says_that_the_unique_key_is_held(clock: DatabaseClock) -> None:
    schedule(job="tests.only_one")
    only_one.enqueue()
    with pytest.raises(AlreadyEnqueued, match="report"):
        run_schedule("report")
    assert not CronRun.objects.exists()


def test_run_now_says_what_is_wrong_with_the_row(clock: DatabaseClock) -> None:
    schedule()
    sql("UPDATE django_reliable_jobs_cronschedule SET kwargs = '[]'")
    with pytest.raises(ValueError, match="kwargs"):
        run_schedule("report")
    CronSchedule.objects.update(kwargs={}, job_name="shop.gone")
    with pytest.raises(UnknownJob, match=r"shop\.gone"):
        run_schedule("report")


@pytest.mark.django_db(transaction=True)
def test_all_of_it_joins_the_callers_transaction(clock: DatabaseClock) -> None:
    schedule()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        run_schedule("report")
        pause_schedule("report")
        schedule("other")
        clock.advance(hours=3)
        backfill("report", clock.now - timedelta(hours=2), clock.now)
        raise ZeroDivisionError
    assert (Job.objects.count(), CronRun.objects.count(), CronSchedule.objects.count()) == (0, 0, 1)
    assert not row().paused


# --- backfill


def test_a_backfill_makes_up_for_times_without_a_job(clock: DatabaseClock) -> None:
    schedule()
    made = backfill("report", utc("2026-06-30 22:00"), utc("2026-07-01 02:00"))
    assert fired() == ["06-30 23:00", "07-01 00:00", "07-01 01:00", "07-01 02:00"], "without the start, with the end"
    assert made == list(Job.objects.order_by("scheduled_for").values_list("id", flat=True))
    assert all(run.manual for run in runs())
    assert backfill("report", utc("2026-06-30 21:00"), utc("2026-07-01 02:00")) == [
        Job.objects.get(scheduled_for=utc("2026-06-30 22:00")).pk
    ], "those that have one do not get another"
    assert row().next_fire_at == utc("2026-07-01 13:00")


def stretches() -> list[tuple[str, str, int]]:
    return [
        (short(run.scheduled_for), short(run.skipped_through), run.skipped_count)
        for run in runs(outcome="skipped_misfire")
        if run.skipped_through is not None
    ]


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        ("12:00", "22:00", []),
        ("12:00", "15:00", [("07-01 16:00", "07-01 20:00", 5)]),
        ("15:00", "17:00", [("07-01 13:00", "07-01 15:00", 3), ("07-01 18:00", "07-01 20:00", 3)]),
        ("18:30", "21:00", [("07-01 13:00", "07-01 18:00", 6)]),
        ("20:30", "20:50", [("07-01 13:00", "07-01 20:00", 8)]),
    ],
)
def test_what_was_skipped_is_cut_out_of_its_stretch(
    clock: DatabaseClock, start: str, end: str, left: list[tuple[str, str, int]]
) -> None:
    schedule(misfire="skip")
    clock.set(utc("2026-07-01 20:30"))
    tick()
    assert stretches() == [("07-01 13:00", "07-01 20:00", 8)]
    clock.set(utc("2026-07-01 23:30"))
    made = backfill("report", utc(f"2026-07-01 {start}"), utc(f"2026-07-01 {end}"))
    assert stretches() == left
    times = {run.scheduled_for for run in runs(outcome="enqueued")}
    assert len(made) == len(times)
    skipped = sum(count for _, _, count in left)
    assert len({moment for moment in times if moment <= utc("2026-07-01 20:00")}) + skipped == 8


@pytest.mark.django_db(transaction=True)
def test_of_several_times_with_one_unique_key_a_backfill_enqueues_what_it_can(clock: DatabaseClock) -> None:
    schedule(job="tests.only_one")
    assert len(backfill("report", utc("2026-07-01 05:00"), utc("2026-07-01 08:00"))) == 1
    assert outcomes() == [
        ("07-01 06:00", "enqueued"), ("07-01 07:00", "skipped_overlap"), ("07-01 08:00", "skipped_overlap"),
    ]  # fmt: skip
    assert backfill("report", utc("2026-07-01 06:00"), utc("2026-07-01 07:00")) == []
    Job.objects.update(status="DONE")
    assert len(backfill("report", utc("2026-07-01 05:00"), utc("2026-07-01 08:00"))) == 1
    assert fired() == ["07-01 06:00", "07-01 07:00"]


def test_a_backfill_is_no_way_to_ask_for_anything(clock: DatabaseClock) -> None:
    schedule("minutely", "* * * * *")
    with pytest.raises(ValueError, match="aware"):
        backfill("minutely", datetime(2026, 1, 1), utc("2026-01-02 00:00"))
    with pytest.raises(ValueError, match="future"):
        backfill("minutely", clock.now, clock.now + timedelta(minutes=3))
    with pytest.raises(ValueError, match="10000"):
        backfill("minutely", utc("2020-01-01 00:00"), clock.now)
    assert backfill("minutely", clock.now, clock.now - timedelta(days=1)) == []
    sql("UPDATE django_reliable_jobs_cronschedule SET expression = 'whenever'")
    with pytest.raises(ScheduleError):
        backfill("minutely", clock.now - timedelta(minutes=3), clock.now)
    assert not Job.objects.exists()
    with pytest.raises(ReliableJobsError):
        resume_schedule("nothing")
