"""The benchmark of the admin runs; what it measures on a busy machine is not judged here."""

from __future__ import annotations

import os
import subprocess
import sys

from testproject.postgres import PROJECT_ROOT


def test_it_prints_each_page_and_the_retry() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.admin", "--scale", "0.002", "--rounds", "1"],
        env=environment, capture_output=True, text=True, timeout=240, cwd=PROJECT_ROOT,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    for page in ("jobs, page 2", "a search in the arguments", "cron runs, page 2", "overview"):
        assert f"\n{page}" in done.stdout
    assert "retry of 121 dead jobs by a filter" in done.stdout
    assert "121 jobs are queued again." in done.stdout
