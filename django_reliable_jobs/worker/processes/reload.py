"""`jobworker --reload`: for developers, start the worker anew when code changes, as `runserver` does.

This process only watches files. The worker is a process of its own that is stopped in order, so no job is lost to a
saved file; one that fails to start (a syntax error) is started again at the next change. It does not outlive this
process: a closed terminal ends both, and on Linux so does a kill.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from django.apps import apps
from django.utils import autoreload

logger = logging.getLogger("django_reliable_jobs.reload")

#: Seconds between two looks at the files.
LOOK_EVERY = 1.0
#: Seconds between two log lines about a worker that takes its time to end.
SAY_EVERY = 60.0
#: Tells a worker the process that watches for changes, with which it ends.
WATCHER = "DJANGO_RELIABLE_JOBS_RELOAD_WATCHER"
_PR_SET_PDEATHSIG = 1


def run(arguments: Sequence[str]) -> int:
    """Run `arguments` (the worker's command) until told to stop; the worker's exit status."""
    signals: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        signals.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, remember)
    while True:
        files = _snapshot()
        # A group of its own: Ctrl-C in the terminal reaches the worker once, through us.
        worker = subprocess.Popen(arguments, start_new_session=True, env=os.environ | {WATCHER: str(os.getpid())})
        changed = _watch(worker, files, signals)
        if worker.poll() is None:
            if changed:
                logger.warning("%s changed, the worker starts anew", changed)
            _stop(worker, signals)
        elif not signals:
            logger.error("the worker ended with status %s; it starts again at the next change", worker.returncode)
            while not signals and not (changed := _changed(files)):
                time.sleep(LOOK_EVERY)
        if signals:
            return worker.returncode or 0


def command() -> list[str]:
    """The command line of this process without `--reload`."""
    return [argument for argument in autoreload.get_child_arguments() if argument != "--reload"]


def end_with_the_watcher() -> None:
    """In a worker, as it starts: it does not outlive the process that watches for changes, if it has one (Linux).

    Not between fork and exec of that process (`preexec_fn`): code that runs there can wait for ever for a lock that the fork
    has copied as taken.
    """
    watcher = os.environ.pop(WATCHER, "")
    if not watcher or not sys.platform.startswith("linux"):
        return
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # Elsewhere a launcher may stand between the two: on Windows each virtual environment has one.
    if str(os.getppid()) != watcher:
        raise SystemExit(128 + signal.SIGTERM)  # it has ended meanwhile


def _watch(worker: subprocess.Popen[bytes], files: dict[Path, float], signals: list[int]) -> Path | None:
    while not signals:
        with suppress(subprocess.TimeoutExpired):
            worker.wait(LOOK_EVERY)
            return None
        if changed := _changed(files):
            return changed
    return None


def _stop(worker: subprocess.Popen[bytes], signals: list[int]) -> None:
    """The first signal asks for an orderly stop, as a changed file does; a second one is passed on, however soon it comes."""
    worker.send_signal(signal.SIGTERM)
    told_twice = False
    say_at = time.monotonic() + SAY_EVERY
    while True:
        with suppress(subprocess.TimeoutExpired):
            worker.wait(0.1)
            return
        if time.monotonic() >= say_at:
            logger.warning("process %d has not ended yet, it is waited for; Ctrl-C twice stops it at once", worker.pid)
            say_at += SAY_EVERY
        if len(signals) > 1 and not told_twice:
            worker.send_signal(signal.SIGTERM)
            told_twice = True


def _snapshot() -> dict[Path, float]:
    return {path: _modified(path) for path in _files()}


def _changed(before: dict[Path, float]) -> Path | None:
    for path in {*before, *_files()}:
        if before.get(path, 0.0) != _modified(path):
            return path
    return None


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _files() -> Iterator[Path]:
    """The Python files of the project's own apps and of what it has imported; not those of installed packages."""
    installed = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
    yield from (path for path in autoreload.iter_all_python_module_files() if not str(path).startswith(installed))
    for config in apps.get_app_configs():
        if not config.path.startswith(installed):
            yield from Path(config.path).rglob("*.py")


def main() -> None:
    logger.warning("watching for changes (process %d)", os.getpid())
    sys.exit(run(command()))
