"""Whatever a handler raises is one failed attempt of its own job: the slot goes on (cases L05, FR-P02)."""

from __future__ import annotations

from typing import Any

import pytest

from django_reliable_jobs.models import JobStatus
from tests.support.fleet import Fleet, JobWorker
from tests.support.look import all_done, ended, errors
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark
from tests.support.probes.sessions import leave, leave_async, report_leaks, report_leaks_async
from tests.support.probes.stubborn import acts_up, raises, raises_async

#: What is thrown, and the class name and the text that are kept of it.
THROWN = {
    "SystemExit": ("SystemExit", "3"),
    "KeyboardInterrupt": ("KeyboardInterrupt", ""),
    "CancelledError": ("asyncio.exceptions.CancelledError", ""),
    "GeneratorExit": ("GeneratorExit", ""),
    "MemoryError": ("MemoryError", ""),
    "BaseException": ("BaseException", "of no kind"),
    "group": ("BaseExceptionGroup", "two (2 sub-exceptions)"),
    "broken text": ("tests.support.probes.stubborn.BrokenText", "its __str__ raised SystemExit"),
    "NUL": ("ValueError", "x\ufffdy"),
    "surrogate": ("ValueError", "x\ufffdy"),
    "50 MB": ("ValueError", "xxxxxxxxxx"),
    "no UTF-8": ("UnicodeDecodeError", "invalid start byte"),
    "recursion": ("ValueError", "at the bottom"),
}


@pytest.fixture(scope="module")
def worker(crew: Fleet) -> JobWorker:
    """Two slots, so that a lost one would be noticed."""
    return crew.start("--slots", "2", "--exclude-queues", "one")


def assert_both_slots_work(worker: JobWorker) -> None:
    """Two jobs that wait for each other can only finish in two slots."""
    Mark.objects.filter(label__startswith="pair").delete()
    pair = [probes.pairs_up.enqueue(one, other) for one, other in (("pair a", "pair b"), ("pair b", "pair a"))]
    all_done(pair)
    assert len(worker.started()) == 1, worker.tail()


@pytest.mark.parametrize("kind", THROWN)
def test_whatever_a_handler_raises_is_a_failed_attempt_of_its_job(worker: JobWorker, kind: str) -> None:
    job = ended(raises.enqueue(kind))
    assert (job.status, job.reason) == (JobStatus.DEAD, "attempts used up")
    (attempt,) = errors(job)
    assert attempt.error_kind == THROWN[kind][0]
    assert THROWN[kind][1] in attempt.error_message
    assert len(attempt.error_message) <= 10_000
    assert len(attempt.traceback) <= 50_000
    assert "stubborn.py" in attempt.traceback
    assert_both_slots_work(worker)


@pytest.mark.parametrize("kind", [*THROWN, "StopIteration"])
def test_whatever_a_coroutine_raises_is_a_failed_attempt_of_its_job(worker: JobWorker, kind: str) -> None:
    job = ended(raises_async.enqueue(kind))
    assert (job.status, job.reason) == (JobStatus.DEAD, "attempts used up")
    (attempt,) = errors(job)
    assert attempt.error_kind == THROWN.get(kind, ("RuntimeError", ""))[0]
    assert_both_slots_work(worker)


def test_ten_good_jobs_finish_behind_the_bad_ones(worker: JobWorker) -> None:
    bad = [kind.enqueue(name) for name in ("SystemExit", "KeyboardInterrupt", "CancelledError", "GeneratorExit")
           for kind in (raises, raises_async)]  # fmt: skip
    good = probes.noop.enqueue_many([(n,) for n in range(10)]) + probes.anoop.enqueue_many([(n,) for n in range(10)])
    all_done(good)
    assert {ended(job).status for job in bad} == {JobStatus.DEAD}


@pytest.mark.parametrize("value", ["object", "set", "NaN", "NUL", "deep", "huge", "endless"])
def test_a_result_that_cannot_be_stored_is_no_failure(worker: JobWorker, value: str) -> None:
    job = ended(probes.gives.enqueue(value))
    assert (job.status, job.reason, job.result) == (JobStatus.DONE, "result not stored", None)
    assert job.attempts == 1


@pytest.mark.parametrize(("how", "answer"), [("subprocess", "out\n"), ("fork", "0 0 0 0"), ("terminate", "-15"),
                                             ("terminate a subprocess", "-15")])  # fmt: skip
def test_a_handler_may_have_processes_of_its_own(worker: JobWorker, how: str, answer: str) -> None:
    """And they do not inherit what the worker does with signals, nor break its connections (case D06)."""
    for _ in range(3):
        job = ended(acts_up.enqueue(how))
        assert job.status == JobStatus.DONE, errors(job)[0].traceback
        assert job.result == answer
    all_done(probes.note.enqueue_many([("after",)] * 4))
    assert len(worker.started()) == 1
    for sign in ("lost", "trouble", "bad record", "server closed"):
        assert sign not in worker.text, worker.tail()


@pytest.mark.parametrize("culprit", [leave, leave_async])
@pytest.mark.parametrize("witness", [report_leaks, report_leaks_async])
def test_what_a_handler_sets_for_itself_does_not_reach_the_next_job(
    crew: Fleet, single: JobWorker, culprit: Any, witness: Any
) -> None:
    all_done([culprit.using(queue="one").enqueue(*(["context"] if culprit is leave else []))])
    found = ended(witness.using(queue="one").enqueue()).value
    expected = {"time zone": "UTC", "language": "en-us", "variable": "nothing", "precision": 28}
    assert found in (expected, [expected, expected])


@pytest.fixture(scope="module")
def single(crew: Fleet) -> JobWorker:
    return crew.start("--slots", "1", "--queues", "one")
