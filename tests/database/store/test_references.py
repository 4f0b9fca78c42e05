"""A project's own foreign keys to `Job`."""

from __future__ import annotations

import os
import subprocess
import sys

from django_reliable_jobs.store.references import foreign_keys
from testproject.postgres import PROJECT_ROOT, EmbeddedPostgres


def test_what_refers_to_a_job_is_treated_as_its_on_delete_says(postgres: EmbeddedPostgres) -> None:
    """Where one row that is protected once kept every old job from being deleted."""
    url = postgres.create_database("references")
    environment = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(PROJECT_ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.references.deleting"],
        env=environment, capture_output=True, text=True, timeout=120, cwd=PROJECT_ROOT, check=False,
    )  # fmt: skip
    assert done.stdout == "as it should be\n", done.stdout + done.stderr


def test_without_such_keys_nothing_is_asked() -> None:
    assert foreign_keys("default") == ()
