"""Programs that an isolated handler runs end with it, and so do theirs (P11, N06)."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from django_reliable_jobs import control
from tests.support.fleet import Fleet, JobWorker, wait_until
from tests.support.look import ended, marked
from tests.support.probes.programs import runs_a_program


def programs() -> list[int]:
    """The program that the handler has started, and the one that this has started."""
    return [mark.pid for mark in marked("program", 2)]


def all_gone(pids: list[int], worker: JobWorker) -> None:
    wait_until(lambda: not any(_runs(pid) for pid in pids), worker.tail)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("how", "then"),
    [("deadline", "wait"), ("cancel", "wait"), ("cancel", "look"), ("memory", "eat"), ("crash of the child", "die")],
)
def test_programs_of_an_isolated_handler_end_with_its_attempt(fleet: Fleet, how: str, then: str) -> None:
    worker = fleet.start("--slots", "1", "--grace", "1")
    job = runs_a_program.using(timeout=2 if how == "deadline" else None).enqueue(then)
    pids = programs()
    if how == "cancel":
        control.cancel(job)
    ended(job)
    all_gone(pids, worker)


@pytest.mark.parametrize("how", ["SIGTERM", "kill of the worker", "kill of the supervisor", "kill of both"])
def test_programs_of_an_isolated_handler_end_with_its_worker(fleet: Fleet, how: str) -> None:
    worker = fleet.start("--slots", "1", "--grace", "0.5")
    runs_a_program.enqueue()
    pids = programs()
    process = worker.worker_pid
    if how == "SIGTERM":
        assert worker.stop() == 0
    if "supervisor" in how or "both" in how:
        worker.tell(signal.SIGKILL)
    if "worker" in how or "both" in how:
        os.kill(process, signal.SIGKILL)
    all_gone(pids, worker)
