"""Where some signals do not exist, outside the main thread, and under settings that not everybody has (L16, C26)."""

from __future__ import annotations

import sys

import pytest

from django_reliable_jobs.models import JobStatus
from tests.support.fleet import Fleet, wait_until
from tests.support.look import all_done, ended, fresh, reached, sql
from tests.support.probes import jobs as probes

WITHOUT_SIGNALS = """
import signal
for name in ("SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "alarm", "setitimer"):
    delattr(signal, name)
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "jobworker", "--burst"])
"""

IN_A_THREAD = """
import signal, threading
before = {number: signal.getsignal(number) for number in signal.valid_signals()}
import django
django.setup()
from django.core.management import call_command
thread = threading.Thread(target=call_command, args=("jobworker", "--burst"))
thread.start()
thread.join()
assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before, "signals were touched"
print("the thread is back")
"""

STOPPED_IN_A_THREAD = """
import os, threading, time, uuid
import django
django.setup()
from django_reliable_jobs.worker.options import WorkerOptions
from django_reliable_jobs.worker.processes.process import WorkerProcess
worker = WorkerProcess(WorkerOptions(slots=2), uuid.uuid4())
codes = []
def run():
    worker.handle_signals()
    codes.append(worker.run())
thread = threading.Thread(target=run)
thread.start()
from tests.support.probes.models import Mark
while not Mark.objects.exists():
    time.sleep(0.05)
worker.request_stop()
thread.join(60)
assert codes == [0], codes
print("the thread is back")
"""

ONLY_IMPORTED = """
import signal
before = {number: signal.getsignal(number) for number in signal.valid_signals()}
import django
django.setup()
import django_reliable_jobs.worker.handlers.job_child
import django_reliable_jobs.worker.processes.reload
import django_reliable_jobs.worker.processes.supervisor
import threading
assert threading.active_count() == 1
assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
"""


def test_a_worker_runs_where_there_is_no_sigalrm_sighup_or_sigusr1(fleet: Fleet) -> None:
    job = probes.noop.enqueue()
    worker = fleet.run([sys.executable, "-c", WITHOUT_SIGNALS], ready=False)
    assert worker.wait() == 0, worker.tail()
    assert fresh(job).status == JobStatus.DONE


def test_outside_the_main_thread_a_worker_leaves_signals_alone(fleet: Fleet) -> None:
    job = probes.noop.enqueue()
    worker = fleet.run([sys.executable, "-c", IN_A_THREAD], ready=False)
    assert worker.wait() == 0, worker.tail()
    assert "the thread is back" in worker.text
    assert "signals are left alone" in worker.text
    assert fresh(job).status == JobStatus.DONE


def test_outside_the_main_thread_it_is_stopped_by_request_stop(fleet: Fleet) -> None:
    all_jobs = [probes.note.enqueue("in a thread"), probes.anote.enqueue("in a thread")]
    worker = fleet.run([sys.executable, "-c", STOPPED_IN_A_THREAD], ready=False)
    assert worker.wait() == 0, worker.tail()
    assert "the thread is back" in worker.text
    assert JobStatus.RUNNING not in {fresh(job).status for job in all_jobs}


def test_importing_the_worker_touches_no_signal_and_starts_no_thread(fleet: Fleet) -> None:
    imported = fleet.run([sys.executable, "-c", ONLY_IMPORTED], ready=False)
    assert imported.wait() == 0, imported.tail()


@pytest.mark.parametrize("use_tz", ["0", "1"])
def test_times_are_right_far_from_utc(fleet: Fleet, use_tz: str) -> None:
    """Case C26: USE_TZ off and on in Kathmandu, five and three quarter hours ahead."""
    env = {"TEST_USE_TZ": use_tz, "TEST_TIME_ZONE": "Asia/Kathmandu"}
    soon = probes.note.using(delay=2).enqueue("soon")
    later = probes.note.using(delay=3600).enqueue("later")
    failing = probes.answers.enqueue("retry", 0.5, 3)
    many = probes.noop.enqueue_many([(n,) for n in range(300)])
    first = fleet.start("--slots", "2", env=env)
    all_done([*many, failing])
    meeting = probes.meet.enqueue("meeting")
    reached(meeting, JobStatus.RUNNING)
    (left,) = sql("SELECT extract(epoch FROM locked_until - clock_timestamp())::float8 FROM django_reliable_jobs_job"
                  " WHERE id = %s", meeting.pk)  # fmt: skip
    assert 0 < left[0] <= 2
    ended(soon)
    assert sql("SELECT started_at >= run_at FROM django_reliable_jobs_job WHERE id = %s", soon.pk) == [(True,)]
    assert fresh(later).status == JobStatus.QUEUED
    first.destroy()
    second = fleet.start("--slots", "2", env=env)
    reached(meeting, JobStatus.QUEUED, JobStatus.RUNNING)
    wait_until(lambda: fresh(meeting).losses == 1, second.tail)
    probes.Mark.objects.create(label="meeting go")
    all_done([meeting])
    assert second.stop() == 0
    assert "TypeError" not in first.text + second.text


def test_enqueueing_under_naive_times_means_local_time(fleet: Fleet) -> None:
    script = (
        "import django; django.setup()\n"
        "from datetime import datetime, timedelta\n"
        "from tests.support.probes.jobs import note\n"
        "print(note.using(run_at=datetime.now() + timedelta(hours=1)).enqueue('an hour from now').pk)\n"
    )
    env = {"TEST_USE_TZ": "0", "TEST_TIME_ZONE": "Asia/Kathmandu", "TZ": "Asia/Kathmandu"}
    ran = fleet.run([sys.executable, "-c", script], env=env, ready=False)
    assert ran.wait() == 0, ran.tail()
    job = fresh(int(ran.text.split()[-1]))
    assert sql("SELECT %s - now() BETWEEN interval '55 minutes' AND interval '61 minutes'", job.run_at) == [(True,)]
