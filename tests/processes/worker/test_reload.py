"""`jobworker --reload`: saved code is run by the next job, mistakes are survived, and nothing is left in the end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from django_reliable_jobs.models import Job, JobStatus
from testproject.postgres import PROJECT_ROOT
from tests.support.factories import JobFactory
from tests.support.fleet import PATIENCE, Fleet, JobWorker, wait_until
from tests.support.look import all_done, fresh, marked, marks
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark

JOBS = """
from django_reliable_jobs import job
from shelf.texts import TEXT
from tests.support.probes.jobs import mark

@job
def tells() -> None:
    mark(f"{{TEXT}} {version}")
"""


class Shelf:
    """An app of a project of its own, whose code the test changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "shelf"
        self.package.mkdir()
        (self.package / "__init__.py").touch()
        (self.package / "texts.py").write_text("TEXT = 'version'\n")
        (folder / "shelf_settings.py").write_text(
            "from tests.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'shelf']\n"
        )
        self.save("jobs.py", JOBS.format(version=1))

    def save(self, name: str, text: str) -> None:
        """In one step, as editors do, and with a time of change that is no earlier save's."""
        path, draft = self.package / name, self.package / f"{name}~"
        before = path.stat().st_mtime if path.exists() else 0.0
        draft.write_text(text)
        if draft.stat().st_mtime <= before:
            os.utime(draft, (before + 1, before + 1))
        draft.replace(path)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@pytest.fixture
def start(fleet: Fleet, shelf: Shelf) -> Iterator[Callable[..., JobWorker]]:
    """Starts the reloader; whatever of it is left at the end of the test is killed."""
    everybody: set[psutil.Process] = set()

    def begin(*arguments: str) -> JobWorker:
        reloader = fleet.run(
            [sys.executable, "manage.py", "jobworker", "--slots", "2", "--reload", *arguments],
            env={
                "DJANGO_SETTINGS_MODULE": "shelf_settings",
                "PYTHONPATH": f"{shelf.folder}{os.pathsep}{PROJECT_ROOT}",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )
        reloader.logged("watching for changes")
        return reloader

    yield begin
    for worker in fleet.workers:
        everybody |= set(worker.processes())
    for process in psutil.process_iter():
        try:
            if process.environ().get("PYTHONPATH", "").startswith(f"{shelf.folder}{os.pathsep}"):
                everybody.add(process)
        except (psutil.Error, OSError):
            pass
    for process in everybody:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass


def told() -> str:
    """What the job says that is enqueued now."""
    job = JobFactory(name="shelf.tells")
    all_done([job])
    return marks(job)[0]


def started_again(reloader: JobWorker, times: int) -> None:
    wait_until(lambda: len(reloader.started()) == times, reloader.tail)


def test_the_next_job_runs_what_was_saved(start: Callable[..., JobWorker], shelf: Shelf) -> None:
    reloader = start()
    assert told() == "version 1"
    shelf.save("jobs.py", JOBS.format(version=2))
    started_again(reloader, 2)
    assert told() == "version 2"
    reloader.logged("jobs.py changed, the worker starts anew")
    shelf.save("texts.py", "TEXT = 'edition'\n")
    started_again(reloader, 3)
    assert told() == "edition 2", "a module that jobs.py imports counts too"
    shelf.save("more.py", "")
    started_again(reloader, 4)
    assert told() == "edition 2", "a new file of the app counts too"
    assert reloader.stop() == 0


def test_a_job_that_runs_while_a_file_is_saved_is_not_lost(start: Callable[..., JobWorker], shelf: Shelf) -> None:
    reloader = start()
    job = probes.meet.enqueue("reload")
    marked("reload begins")
    shelf.save("jobs.py", JOBS.format(version=2))
    reloader.logged("changed, the worker starts anew")
    Mark.objects.create(label="reload go")
    all_done([job])
    assert (fresh(job).attempts, fresh(job).losses) == (1, 0)
    assert told() == "version 2"
    assert reloader.stop() == 0


@pytest.mark.parametrize("mistake", ["def (:\n", "import nowhere_at_all\n"])
def test_a_mistake_does_not_end_the_reloader(start: Callable[..., JobWorker], shelf: Shelf, mistake: str) -> None:
    reloader = start()
    assert told() == "version 1"
    shelf.save("jobs.py", mistake)
    reloader.logged("it starts again at the next change")
    assert "Error: " in reloader.text, "and the mistake is shown"
    waiting = JobFactory(name="shelf.tells")
    assert reloader.process.poll() is None
    shelf.save("jobs.py", JOBS.format(version=2))
    all_done([waiting])
    assert marks(waiting) == ["version 2"]
    assert reloader.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("when", ["at work", "after a mistake"])
def test_a_signal_ends_everything_and_leaves_no_process_behind(
    start: Callable[..., JobWorker], shelf: Shelf, number: signal.Signals, when: str
) -> None:
    reloader = start()
    assert told() == "version 1"
    if when == "after a mistake":
        shelf.save("jobs.py", "def (:\n")
        reloader.logged("it starts again at the next change")
    everybody = reloader.processes()
    assert len(everybody) == (3 if when == "at work" else 1), everybody
    status = reloader.stop(number)
    assert status == (0 if when == "at work" else 1)
    _, alive = psutil.wait_procs(everybody, timeout=PATIENCE)
    assert alive == []
    assert not Job.objects.filter(status=JobStatus.RUNNING).exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a child that its parent is gone")
def test_a_killed_reloader_leaves_no_worker_behind(start: Callable[..., JobWorker], shelf: Shelf) -> None:
    reloader = start()
    assert told() == "version 1"
    everybody = reloader.processes()
    assert len(everybody) == 3
    reloader.tell(signal.SIGKILL)
    _, alive = psutil.wait_procs(everybody, timeout=PATIENCE)
    assert alive == []


def test_a_second_signal_skips_the_waiting(start: Callable[..., JobWorker]) -> None:
    """As without --reload: the job that runs is handed back, and no attempt is used up."""
    reloader = start("--grace", "600")
    job = probes.nap.enqueue(300, "long")
    marked("long begins")
    reloader.tell(signal.SIGTERM)
    reloader.tell(signal.SIGINT)
    assert reloader.wait() == 0
    assert (fresh(job).status, fresh(job).attempts) == (JobStatus.QUEUED, 0)
