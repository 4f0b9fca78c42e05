"""A thread that was started at import does not run in a forked worker: it is warned of, and there is a signal (N19)."""

from __future__ import annotations

import os
from pathlib import Path

from testproject.postgres import PROJECT_ROOT
from tests.support.fleet import Fleet
from tests.support.look import ended
from tests.support.probes import jobs as probes

SETTINGS = """
import threading, time
from tests.settings import *
from django_reliable_jobs.signals import worker_process_started

threading.Thread(target=time.sleep, args=(600,), name="sdk-sender", daemon=True).start()

def start(isolated, **kwargs):
    print(f"started isolated={isolated}", flush=True)
    raise ValueError("a receiver that fails")

worker_process_started.connect(start)
"""


def test_threads_are_named_and_each_process_has_the_signal(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "threaded_settings.py").write_text(SETTINGS)
    path = f"{tmp_path}{os.pathsep}{PROJECT_ROOT}"
    worker = fleet.start(env={"DJANGO_SETTINGS_MODULE": "threaded_settings", "PYTHONPATH": path})
    assert "will not run in them: sdk-sender." in worker.text
    worker.logged("started isolated=False")
    ended(probes.isolated.enqueue("ok"))
    worker.logged("started isolated=True")
    worker.logged("a receiver that fails")
    assert worker.stop() == 0
