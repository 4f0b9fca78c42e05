"""For each way to misbehave: how long its job is RUNNING, and its slot taken, beside its timeout and the grace time.

Eight slots: one for the handler that misbehaves, seven for jobs that nothing may touch, and a hundred jobs behind them,
which only the first slot can run. `pytest -s` prints the table; the figures of a quiet machine are in
`docs/reference/deadlines.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_reliable_jobs.models import Job, JobStatus
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.look import all_done, described, ended, errors, marked
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark
from tests.support.probes.stubborn import dies, hangs, hangs_async

TIMEOUT, GRACE = 1.0, 1.0
SLOTS = 8
#: What a busy machine may add; a quiet one needs a tenth of a second (half a second for a child that is killed).
SLACK = 10.0

DEADLINE = "django_reliable_jobs.errors.DeadlineExceeded"
CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "time.sleep(300)": (lambda: hangs.enqueue("sleep"), DEADLINE),
    "while True: pass": (lambda: hangs.enqueue("spin"), DEADLINE),
    "a query, pg_sleep(60)": (lambda: hangs.enqueue("pg_sleep"), DEADLINE),
    "a coroutine that blocks its loop": (lambda: hangs_async.enqueue("block"), DEADLINE),
    "swallows every Exception": (lambda: hangs.enqueue("swallow errors"), DEADLINE),
    "swallows every BaseException": (lambda: hangs.enqueue("swallow everything"), DEADLINE),
    "a coroutine that swallows BaseException": (lambda: hangs_async.enqueue("swallow everything"), DEADLINE),
    "a C call that holds the GIL, isolated": (lambda: isolated("hold the GIL"), DEADLINE),
    "while True: pass, isolated": (lambda: isolated("spin"), DEADLINE),
    "os._exit(7), isolated": (lambda: isolated("exit"), ""),
    "os.kill(os.getpid(), SIGKILL), isolated": (lambda: isolated("kill"), ""),
    "a segmentation fault, isolated": (lambda: isolated("segfault"), ""),
    "1,000 MB at memory_limit=300, isolated": (
        lambda: probes.isolated_glutton.using(timeout=TIMEOUT).enqueue(1000), "",
    ),
}  # fmt: skip


def isolated(what: str) -> Any:
    return probes.isolated.using(timeout=TIMEOUT, max_attempts=1).enqueue(what)


@pytest.fixture(scope="module")
def worker(crew: Fleet) -> JobWorker:
    """The lease is long: it is not what ends anything here."""
    return crew.start("--slots", str(SLOTS), "--grace", str(GRACE), settings={"LEASE": 60, "HEARTBEAT": 10})


@pytest.fixture(scope="module")
def table() -> Iterator[list[tuple[str, float, float]]]:
    rows: list[tuple[str, float, float]] = []
    yield rows
    print(f"\n{'handler':42}{'RUNNING':>9}{'slot free':>11}   (timeout {TIMEOUT:g} s, grace {GRACE:g} s)")
    for name, held, free in rows:
        print(f"{name:42}{held:7.2f} s{free:9.2f} s")


@pytest.mark.parametrize("name", CASES)
def test_its_row_and_its_slot_are_free_after_timeout_and_grace_and_nobody_else_is_touched(
    worker: JobWorker, table: list[tuple[str, float, float]], name: str, record_property: Callable[[str, object], None]
) -> None:
    make, error_kind = CASES[name]
    Mark.objects.all().delete()
    others = [probes.meet.using(timeout=None, max_attempts=1).enqueue("other") for _ in range(SLOTS - 1)]
    marked("other begins", SLOTS - 1)
    bad = make()
    wait_until(lambda: Job.objects.filter(pk=bad.pk, started_at__isnull=False).exists(), worker.tail)
    behind = probes.noop.enqueue_many([(n,) for n in range(100)])
    found = ended(bad)
    all_done(behind)  # in the one slot that is not taken by the others

    assert found.status == JobStatus.DEAD
    assert found.started_at is not None
    assert found.finished_at is not None
    held = (found.finished_at - found.started_at).total_seconds()
    first = min(Job.objects.filter(pk__in=behind).values_list("started_at", flat=True))
    free = (first - found.started_at).total_seconds()
    table.append((name, held, free))
    record_property("seconds RUNNING", round(held, 3))
    record_property("seconds until the slot was free", round(free, 3))
    (attempt,) = errors(found)
    assert not error_kind or attempt.error_kind == error_kind
    assert held < TIMEOUT + GRACE + SLACK
    assert free < TIMEOUT + GRACE + SLACK

    running = Job.objects.filter(pk__in=[job.pk for job in others], status=JobStatus.RUNNING, attempts=1, losses=0)
    assert running.count() == SLOTS - 1, described([job.pk for job in others])
    Mark.objects.create(label="other go")
    all_done(others)
    assert Mark.objects.filter(label="other ends").count() == SLOTS - 1


@pytest.mark.parametrize("how", ["exit 1", "exit 0", "exit 4", "kill"])
def test_a_handler_that_ends_its_whole_worker_is_lost_and_the_next_process_runs_on(
    worker: JobWorker, table: list[tuple[str, float, float]], how: str
) -> None:
    """Without isolation the other slots' jobs go down with it, and come back. Its lease, of a minute, is not waited for,
    whatever exit status it chose: those that a worker itself ends with have no meaning here."""
    before = len(worker.started())
    found = ended(dies.using(max_attempts=1).enqueue(how), timeout=40)
    all_done(probes.noop.enqueue_many([(n,) for n in range(100)]))
    assert (found.status, found.reason) == (JobStatus.DEAD, "lost")
    assert found.started_at is not None
    assert found.finished_at is not None
    held = (found.finished_at - found.started_at).total_seconds()
    name = "os.kill(os.getpid(), SIGKILL)" if how == "kill" else f"os._exit({how[-1]})"
    table.append((f"{name}, not isolated", held, held))
    assert held < TIMEOUT + GRACE + SLACK
    assert len(worker.started()) > before


def test_a_burst_that_a_handler_ended_is_no_success(fleet: Fleet) -> None:
    bad = dies.using(max_attempts=1).enqueue("exit 0")
    good = probes.noop.enqueue_many([(n,) for n in range(20)])
    assert fleet.burst(settings={"LEASE": 60, "HEARTBEAT": 10}).process.returncode == 1
    assert ended(bad).reason == "lost"
    all_done(good)
