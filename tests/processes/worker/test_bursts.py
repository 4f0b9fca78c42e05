"""`jobworker --burst` and the other options of the command, as exit statuses and tables show them."""

from __future__ import annotations

import sys
import time
from itertools import pairwise

import psutil
import psycopg
import pytest

from django_reliable_jobs import control
from django_reliable_jobs.models import Job, JobStatus
from testproject.postgres import EmbeddedPostgres
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.look import all_done, ended, fresh, marks, sql
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark


def test_a_burst_runs_what_is_due_and_exits_with_0(fleet: Fleet) -> None:
    due = [probes.noop.enqueue(1), probes.anoop.enqueue(2), probes.note.enqueue("x")]
    many = probes.noop.enqueue_many([(n,) for n in range(100)])
    later = probes.noop.using(delay=3600).enqueue(3)
    worker = fleet.burst()
    assert worker.process.returncode == 0, worker.tail()
    all_done([*due, *many])
    assert fresh(later).status == JobStatus.QUEUED


def test_a_burst_with_nothing_to_do_exits_with_0(fleet: Fleet) -> None:
    assert fleet.burst().process.returncode == 0


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt"])
def test_a_burst_in_which_something_failed_exits_with_1(fleet: Fleet, kind: str) -> None:
    failing, good = probes.stubborn.raises.enqueue(kind), probes.noop.enqueue()
    assert fleet.burst().process.returncode == 1
    assert fresh(failing).status == JobStatus.DEAD
    assert fresh(good).status == JobStatus.DONE


def test_a_burst_exits_with_1_for_an_attempt_that_failed_even_if_the_next_one_went_well(fleet: Fleet) -> None:
    job = probes.answers.using(timeout=30).enqueue("retry", 0.0, 2)
    assert fleet.burst().process.returncode == 1
    assert fresh(job).status == JobStatus.DONE


def test_a_burst_runs_what_its_own_jobs_put_back_at_once(fleet: Fleet) -> None:
    job = probes.answers.enqueue("snooze", 0.0, 3)
    assert fleet.burst("--slots", "1").process.returncode == 0
    assert fresh(job).status == JobStatus.DONE
    assert len(marks(job)) == 3


def test_a_burst_does_not_wait_for_jobs_that_have_expired(fleet: Fleet) -> None:
    expired = probes.noop.using(expires=0).enqueue()
    good = probes.noop.enqueue()
    worker = fleet.start("--burst", settings={"LEASE": 30, "HEARTBEAT": 10}, ready=False)
    assert worker.wait(timeout=20) == 0
    assert fresh(good).status == JobStatus.DONE
    assert fresh(expired).status in (JobStatus.QUEUED, JobStatus.CANCELLED)


def test_max_jobs_ends_the_worker_after_so_many(fleet: Fleet) -> None:
    ids = probes.noop.enqueue_many([(n,) for n in range(10)])
    worker = fleet.start("--max-jobs", "3", ready=False)
    assert worker.wait() == 0
    assert Job.objects.filter(pk__in=ids, status=JobStatus.DONE).count() == 3
    assert Job.objects.filter(pk__in=ids, status=JobStatus.QUEUED, attempts=0).count() == 7


def test_max_jobs_waits_for_jobs_that_come_later(fleet: Fleet) -> None:
    worker = fleet.start("--max-jobs", "1")
    job = probes.note.enqueue("later")
    assert worker.wait() == 0
    assert fresh(job).status == JobStatus.DONE


def test_only_the_named_queues_are_served(fleet: Fleet) -> None:
    mine = [probes.noop.using(queue=queue).enqueue() for queue in ("mail", "default")]
    other = probes.noop.using(queue="reports").enqueue()
    assert fleet.burst("--queues", "mail, default").process.returncode == 0
    all_done(mine)
    assert fresh(other).status == JobStatus.QUEUED


def test_excluded_queues_are_not_served(fleet: Fleet) -> None:
    mine = [probes.noop.using(queue=queue).enqueue() for queue in ("mail", "default")]
    other = probes.noop.using(queue="reports").enqueue()
    assert fleet.burst("--exclude-queues", "reports,more").process.returncode == 0
    all_done(mine)
    assert fresh(other).status == JobStatus.QUEUED


def test_a_queue_never_has_more_slots_than_its_cap(fleet: Fleet) -> None:
    """And the others use those that it may not have."""
    mail = [probes.nap.using(queue="mail").enqueue(0.15, "mail") for _ in range(8)]
    other = [probes.nap.enqueue(0.15, "default") for _ in range(8)]
    assert fleet.burst("--queues", "mail:2,default", "--slots", "6").process.returncode == 0
    all_done([*mail, *other])
    assert _most_at_once("mail") == 2
    assert _most_at_once("default") > 2


def _most_at_once(label: str) -> int:
    running, most = 0, 0
    for said in Mark.objects.filter(label__startswith=label).order_by("pk").values_list("label", flat=True):
        running += 1 if said.endswith("begins") else -1
        most = max(most, running)
    return most


def test_a_worker_whose_queues_are_at_their_caps_does_not_spin(fleet: Fleet) -> None:
    waiting = [probes.meet.using(queue="mail", timeout=120).enqueue("mail") for _ in range(3)]
    worker = fleet.start("--queues", "mail:1", "--slots", "4")
    wait_until(lambda: Mark.objects.filter(label="mail begins").exists())
    used = _cpu_seconds_of(worker, 1.5)
    print("USED", used)
    assert used < 0.8, f"it used {used:.2f} s of the processor in 1.5 s of waiting"
    Mark.objects.create(label="mail go")
    all_done(waiting)
    assert _most_at_once("mail") == 1


def _cpu_seconds_of(worker: JobWorker, seconds: float) -> float:
    process = psutil.Process(worker.worker_pid)
    before = process.cpu_times()
    time.sleep(seconds)  # how much it uses while nothing happens is what is measured
    after = process.cpu_times()
    return after.user + after.system - before.user - before.system


def test_a_freed_slot_of_a_capped_queue_is_used_at_once(fleet: Fleet) -> None:
    """Not at the next poll."""
    ids = probes.noop.using(queue="mail").enqueue_many([(n,) for n in range(200)])
    worker = fleet.start("--burst", "--queues", "mail:1", "--slots", "4", settings={"POLL": 2}, ready=False)
    assert worker.wait(timeout=30) == 0
    all_done(ids)


def test_higher_priority_runs_first(fleet: Fleet) -> None:
    for priority in (0, 5, -3, 10):
        probes.note.using(priority=priority).enqueue(str(priority))
    assert fleet.burst("--slots", "1").process.returncode == 0
    assert list(Mark.objects.order_by("pk").values_list("label", flat=True)) == ["10", "5", "0", "-3"]


def test_jobs_of_one_priority_run_in_the_order_of_their_run_at(fleet: Fleet) -> None:
    ids = probes.note.enqueue_many([(f"{n:03}",) for n in range(50)])
    assert fleet.burst("--slots", "1").process.returncode == 0
    all_done(ids)
    labels = list(Mark.objects.order_by("pk").values_list("label", flat=True))
    assert all(one < other for one, other in pairwise(labels))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--slots", "0"], "--slots is at least 1."),
        (["--slots", "many"], "--slots"),
        (["--processes", "0"], "--processes is at least 1."),
        (["--max-jobs", "-1"], "--max-jobs is at least 1."),
        (["--grace", "-1"], "--grace is a number of seconds, 0 or more."),
        (["--grace", "nan"], "--grace is a number of seconds, 0 or more."),
        (["--queues", "mail:0"], "a number of slots of at least 1"),
        (["--queues", "mail:two"], "a number of slots of at least 1"),
        (["--queues", "ma il"], "a queue is a string"),
        (["--queues", "mail", "--exclude-queues", "mail"], "is in --queues and in --exclude-queues"),
        (["--burst", "--processes", "2"], "run in one process"),
        (["--what"], "--what"),
    ],
)
def test_a_bad_option_is_refused_by_name(fleet: Fleet, arguments: list[str], complaint: str) -> None:
    worker = fleet.start(*arguments, ready=False)
    assert worker.wait() in (1, 2)
    assert complaint in worker.text
    assert "Traceback" not in worker.text


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"LEASE": 30, "HEARTBEAT": 30}, ("HEARTBEAT", "LEASE")),
        ({"LEASE": 0, "HEARTBEAT": 0.1, "POLL": 0.1}, ("LEASE",)),
        ({"LEASE": -5}, ("LEASE",)),
        ({"LEASE": 2, "HEARTBEAT": 0.5, "POLL": 3}, ("POLL", "LEASE")),
    ],
)
def test_settings_in_which_a_lease_cannot_live_are_refused_at_the_start(
    fleet: Fleet, settings: dict[str, float], named: tuple[str, ...]
) -> None:
    worker = fleet.start(settings=settings, ready=False)
    assert worker.wait() == 1
    for name in named:
        assert f'RELIABLE_JOBS["{name}"]' in worker.text or name in worker.text
    assert "reliable_jobs.E001" in worker.text


def test_a_worker_that_starts_before_the_migration_begins_once_the_tables_are_there(
    fleet: Fleet, postgres: EmbeddedPostgres
) -> None:
    url = postgres.create_database("not_yet_migrated")
    worker = fleet.start("--slots", "2", env={"DATABASE_URL": url})
    worker.logged("migrations of django_reliable_jobs are not applied yet")
    assert worker.process.poll() is None
    migrated = fleet.run([sys.executable, "manage.py", "migrate", "-v0"], env={"DATABASE_URL": url}, ready=False)
    assert migrated.wait() == 0, migrated.tail()
    with psycopg.connect(url, autocommit=True) as there:
        there.execute(
            "INSERT INTO django_reliable_jobs_job (name, queue, args, kwargs, status, reason, priority, run_at,"
            " attempts, max_attempts, losses, fencing_token, unique_until_start, created_at)"
            " VALUES ('probes.noop', 'default', '[]', '{}', 'QUEUED', '', 0, now(), 0, 5, 0, 0, false, now())"
        )
        query = "SELECT status, attempts FROM django_reliable_jobs_job"
        wait_until(lambda: there.execute(query).fetchone() == ("DONE", 1), worker.tail)
    assert len(worker.started()) == 1, "it was not restarted for it"
    assert worker.stop() == 0


def test_a_burst_without_tables_gives_up_with_status_3(fleet: Fleet, postgres: EmbeddedPostgres) -> None:
    url = postgres.create_database("never_migrated")
    worker = fleet.burst(env={"DATABASE_URL": url}, settings={"MIGRATE": {"LOCK_TIMEOUT": 2}})
    assert worker.process.returncode == 3, worker.tail()
    assert "migrations of django_reliable_jobs are not applied yet" in worker.text
    assert len(worker.started()) == 1


def test_a_burst_without_a_database_gives_up_with_status_3(fleet: Fleet) -> None:
    url = "postgres://nobody@127.0.0.1:1/nothing"
    worker = fleet.burst(env={"DATABASE_URL": url}, settings={"MIGRATE": {"LOCK_TIMEOUT": 2}})
    assert worker.process.returncode == 3, worker.tail()
    assert "the database cannot be reached" in worker.text


def test_a_worker_process_is_replaced_after_so_many_jobs(fleet: Fleet) -> None:
    worker = fleet.start("--max-jobs-per-process", "20", "--slots", "2")

    def three_replacements() -> bool:
        """A process goes on beyond its limit while its predecessor still lives."""
        all_done(probes.noop.enqueue_many([(n,) for n in range(20)]))
        return len(worker.started()) >= 4

    wait_until(three_replacements, worker.tail)
    assert not sql("SELECT 1 FROM django_reliable_jobs_job WHERE losses > 0")
    assert worker.stop() == 0


def test_a_worker_process_above_max_rss_is_replaced(fleet: Fleet) -> None:
    worker = fleet.start("--max-rss", "10", "--slots", "2")
    worker.logged("more than 10 MiB")
    ended(probes.noop.enqueue())
    assert worker.stop() == 0


def test_a_paused_queue_rests_until_it_is_resumed(fleet: Fleet) -> None:
    control.pause_queue("mail")
    paused = probes.noop.using(queue="mail").enqueue()
    assert fleet.burst().process.returncode == 0
    assert fresh(paused).status == JobStatus.QUEUED
    worker = fleet.start()
    control.resume_queue("mail")
    all_done([paused])
    assert worker.stop() == 0
