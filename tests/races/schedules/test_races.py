"""Every interleaving that `store/schedules/fire.py` names: whatever happens between the plan and the fire, once is once."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import OperationalError, connections

from django_reliable_jobs import job
from django_reliable_jobs.control.schedules import delete_schedule, pause_schedule, resume_schedule, run_schedule
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.firing.plan import plan_firing
from django_reliable_jobs.models import CronRun, CronSchedule, Job
from django_reliable_jobs.store import statements
from django_reliable_jobs.store.schedules import due as schedule_due
from django_reliable_jobs.store.schedules import fire as store
from django_reliable_jobs.store.schedules.fire import Fired, Firing
from tests.support.schedules.clock import SEARCH_PATH, DatabaseClock, utc
from tests.support.schedules.tools import (
    NOOP,
    fired,
    job_of,
    outcomes,
    row,
    runs,
    schedule,
    set_status,
    sql,
    tick,
    worker,
)
from tests.support.sessions import Session, together

pytestmark = pytest.mark.django_db(transaction=True)

ONE = utc("2026-07-01 13:00")
PAUSE = 4712

Sessions = Callable[[], Session]


@job(name="tests.one_at_a_time", unique_key="one at a time")
def one_at_a_time() -> None: ...


def planned(clock: DatabaseClock) -> list[Firing]:
    """What a worker is about to do at one o'clock."""
    clock.set(ONE)
    look = schedule_due.look("default", registry.names(), 50)
    return [plan_firing(due, registry.find(due.job_name)) for due in look.due]


def fire(firings: list[Firing]) -> Fired:
    return store.fire("default", uuid4(), firings)


@contextmanager
def stopping(session: Session, place: str) -> Iterator[Callable[[], None]]:
    """`schedules/fire.sql` stops at `place` if this session runs it; what is yielded lets it go on."""
    stop = f"(SELECT true FROM pg_advisory_xact_lock_shared({PAUSE})) AND "
    text, count = re.subn(place, lambda found: found[0] + stop, statements.load("schedules/fire"), count=1)
    assert count == 1, f"no place for a pause: {place}"
    load, thread = statements.load, session.do(threading.get_ident)

    def stopped(asked: str) -> str:
        return text if asked == "schedules/fire" and threading.get_ident() == thread else load(asked)

    with Session() as keeper:
        keeper.sql(f"SELECT pg_advisory_lock({PAUSE})")
        statements.load = stopped  # type: ignore[assignment]
        try:
            yield lambda: keeper.sql(f"SELECT pg_advisory_unlock({PAUSE})") and None
        finally:
            statements.load = load


BEFORE_THE_LOCK = r"ON s\.id = p\.id\n     WHERE "


def test_of_two_workers_with_the_same_plan_one_fires(clock: DatabaseClock) -> None:
    schedule()
    one, other = planned(clock), planned(clock)
    assert len(fire(one).jobs) == 1
    assert fire(other) == Fired(set(), [], set())
    assert CronRun.objects.count() == Job.objects.count() == 1


def test_of_two_statements_at_the_same_time_one_fires(clock: DatabaseClock, sessions: Sessions) -> None:
    """The slow one has its snapshot from before the other's commit."""
    schedule()
    slow = sessions()
    one, other = planned(clock), planned(clock)
    with stopping(slow, BEFORE_THE_LOCK) as go_on:
        answer = slow.start(fire, one)
        slow.waits_for(answer)
        assert len(fire(other).jobs) == 1
        go_on()
        assert answer.result(60) == Fired(set(), [], set())
    assert CronRun.objects.count() == Job.objects.count() == 1


CHANGES: dict[str, Callable[[], object]] = {
    "paused": lambda: pause_schedule("report"),
    "paused and resumed": lambda: (pause_schedule("report"), resume_schedule("report")),
    "edited": lambda: schedule(expression="30 * * * *"),
    "given other arguments": lambda: schedule(kwargs={"number": 2}),
    "deleted": lambda: delete_schedule("report"),
    "deleted and made again": lambda: (delete_schedule("report"), schedule()),
    "marked broken": lambda: CronSchedule.objects.filter(name="report").update(broken="by another worker"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("when", ["before the statement", "during the statement"])
def test_a_plan_is_void_when_the_schedule_was_changed(
    clock: DatabaseClock, sessions: Sessions, change: Callable[[], object], when: str
) -> None:
    schedule()
    schedule("other")
    plans = planned(clock)
    if when == "before the statement":
        change()
        got = fire(plans)
    else:
        slow = sessions()
        with stopping(slow, BEFORE_THE_LOCK) as go_on:
            answer = slow.start(fire, plans)
            slow.waits_for(answer)
            change()
            go_on()
            got = answer.result(60)
    assert (len(got.schedules), len(got.jobs)) == (1, 1)
    assert (fired(), fired("other")) == ([], ["07-01 13:00"])


def test_nobody_waits_behind_anybody(clock: DatabaseClock, sessions: Sessions) -> None:
    schedule()
    schedule("other")
    admin = sessions()
    plans = planned(clock)
    admin.begin()
    admin.sql("SELECT FROM django_reliable_jobs_cronschedule WHERE name = 'report' FOR UPDATE")
    assert len(fire(plans).jobs) == 1
    assert (fired(), fired("other")) == ([], ["07-01 13:00"])
    scheduler = worker()
    assert scheduler.tick() < 1, "it looks again soon"
    admin.rollback()
    tick(scheduler)
    assert fired() == ["07-01 13:00"]


def test_the_answer_is_lost_and_the_plan_is_tried_again(clock: DatabaseClock) -> None:
    schedule()
    plans = planned(clock)
    fire(plans)
    assert fire(plans) == Fired(set(), [], set())
    assert Job.objects.count() == 1


def test_a_run_that_is_there_already_makes_no_second_job(clock: DatabaseClock) -> None:
    """As after a restore of one table, or a change by hand. The schedule goes on."""
    schedule()
    CronRun.objects.create(name="report", scheduled_for=ONE, outcome="enqueued", fired_at=ONE)
    tick_at(clock, 0)
    assert not Job.objects.exists()
    tick_at(clock, 3600)
    assert (Job.objects.count(), row().fired_through) == (1, utc("2026-07-01 14:00"))


def tick_at(clock: DatabaseClock, seconds: float) -> None:
    clock.set(ONE + timedelta(seconds=seconds))
    tick()


def test_two_plans_for_a_time_that_waited(clock: DatabaseClock) -> None:
    schedule(overlap="queue")
    tick_at(clock, 0)
    set_status(job_of("report", ONE), "RUNNING")
    tick_at(clock, 3600)
    clock.advance(seconds=2)
    still_waits = [plan_firing(due, registry.find(NOOP)) for due in schedule_due.look("default", [NOOP], 9).due]
    set_status(job_of("report", ONE), "DONE")
    runs_now = [plan_firing(due, registry.find(NOOP)) for due in schedule_due.look("default", [NOOP], 9).due]
    again = [plan_firing(due, registry.find(NOOP)) for due in schedule_due.look("default", [NOOP], 9).due]
    assert len(fire(runs_now).jobs) == 1
    assert fire(again) == fire(still_waits) == Fired(set(), [], set())
    assert (row().waiting_for, row().next_fire_at) == (None, utc("2026-07-01 15:00"))
    assert fired() == ["07-01 13:00", "07-01 14:00"]


def test_the_server_process_dies_in_the_middle(clock: DatabaseClock, sessions: Sessions) -> None:
    """C20: between the run and its job. Neither is there; the next look makes both."""
    schedule()
    plans = planned(clock)
    victim = sessions()
    with between_run_and_job(victim):
        answer = victim.start(fire, plans)
        victim.waits_for(answer)
        sql("SELECT pg_terminate_backend(%s)", victim.pid)
        with pytest.raises(OperationalError):
            answer.result(60)
    victim.do(connections.close_all)
    assert not CronRun.objects.exists()
    assert not Job.objects.exists()
    assert row().fired_through < ONE
    tick()
    assert CronRun.objects.count() == Job.objects.count() == 1


@contextmanager
def between_run_and_job(session: Session) -> Iterator[None]:
    """The INSERT of a job waits in a trigger: its run has been inserted by the same statement."""
    with Session() as keeper:
        keeper.sql(f"SELECT pg_advisory_lock({PAUSE})")
        sql(f"""
            CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF pg_backend_pid() = {session.pid} THEN
                    PERFORM set_config('lock_timeout', '0', true);
                    PERFORM pg_advisory_xact_lock_shared({PAUSE});
                END IF;
                RETURN NEW;
            END $$""")
        sql("CREATE TRIGGER wait BEFORE INSERT ON django_reliable_jobs_job FOR EACH ROW EXECUTE FUNCTION public.wait()")
        try:
            yield
        finally:
            sql("DROP TRIGGER wait ON django_reliable_jobs_job")
            sql("DROP FUNCTION public.wait")


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_unique_key_that_somebody_is_about_to_take_holds_up_nobody_else(
    clock: DatabaseClock, sessions: Sessions, ends: str
) -> None:
    """An enqueue with the same key is not committed yet. Its schedule is looked at again; the others are not late."""
    schedule(job="tests.one_at_a_time")
    for number in range(5):
        schedule(f"s{number}")
    somebody = sessions()
    somebody.begin()
    somebody.do(one_at_a_time.enqueue)
    clock.set(ONE)
    scheduler = worker()
    assert tick(scheduler) > 0
    assert [fired(f"s{number}") for number in range(5)] == [["07-01 13:00"]] * 5
    assert outcomes() == []
    getattr(somebody, ends)()
    tick(scheduler)
    assert outcomes() == [("07-01 13:00", "skipped_overlap" if ends == "commit" else "enqueued")]
    assert Job.objects.filter(name="tests.one_at_a_time").count() == 1


def test_a_running_job_whose_row_is_locked_is_cancelled_later(clock: DatabaseClock, sessions: Sessions) -> None:
    schedule(overlap="cancel_running")
    schedule("other")
    tick_at(clock, 0)
    set_status(job_of("report", ONE), "RUNNING")
    somebody = sessions()
    somebody.begin()
    somebody.sql("SELECT FROM django_reliable_jobs_job WHERE name = %s FOR UPDATE", [NOOP])
    clock.set(ONE + timedelta(hours=1))
    scheduler = worker()
    assert tick(scheduler) > 0
    assert (len(fired()), len(fired("other"))) == (1, 2)
    somebody.rollback()
    tick(scheduler)
    assert len(fired()) == 2
    assert job_of("report", ONE).cancel_requested_at is not None


def test_many_workers_and_many_schedules(clock: DatabaseClock) -> None:
    """C19: four schedulers, 51 schedules that are due at the same moment, again and again."""
    for number in range(51):
        schedule(f"s{number}", "* * * * *", job="tests.one_at_a_time" if number == 0 else NOOP)

    def work() -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute(f"SET search_path = {SEARCH_PATH}")
        scheduler = worker()
        for _ in range(40):
            scheduler.tick()

    for _ in range(5):
        clock.advance(minutes=1)
        together(*[work] * 4)
        tick()
        Job.objects.filter(name="tests.one_at_a_time").update(status="DONE")
    assert CronRun.objects.filter(outcome="enqueued").count() == Job.objects.count() == 51 * 5
    assert {run.job_id for run in CronRun.objects.all()} == set(Job.objects.values_list("id", flat=True))


def test_run_now_waits_for_a_fire_that_is_under_way(clock: DatabaseClock, sessions: Sessions) -> None:
    schedule()
    slow = sessions()
    plans = planned(clock)
    clock.advance(seconds=1)
    with between_run_and_job(slow):
        answer = slow.start(fire, plans)
        slow.waits_for(answer)
        by_hand = sessions()
        person = by_hand.start(run_schedule, "report")
        sql(f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE objid = {PAUSE} AND granted")
        assert len(answer.result(60).jobs) == 1
        assert Job.objects.filter(pk=person.result(60)).exists()
    assert [(run.manual, run.scheduled_for) for run in runs()] == [
        (False, ONE), (True, ONE + timedelta(seconds=1)),
    ]  # fmt: skip
    assert row().next_fire_at == utc("2026-07-01 14:00"), "run now leaves the schedule's place alone"
