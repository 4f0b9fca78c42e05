"""The code of the commit before the newest migration, out of the repository's history."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

from testproject.postgres import PROJECT_ROOT

MIGRATIONS = "django_reliable_jobs/migrations"


def newest_migration() -> str:
    return max(path.name for path in (PROJECT_ROOT / MIGRATIONS).glob("[0-9]*.py"))


def git(*arguments: str) -> bytes:
    # Whoever runs the tests need not own the clone.
    command = ["git", "-c", "safe.directory=*", "-C", str(PROJECT_ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


def commit_before_the_newest_migration() -> str:
    """HEAD while that migration is not committed yet; UPGRADE_FROM names another one. Fails on a clone without the history."""
    if asked := os.environ.get("UPGRADE_FROM"):
        return git("rev-parse", "--verify", f"{asked}^{{commit}}").decode().strip()
    added = (
        git("log", "-1", "--diff-filter=A", "--format=%H", "--", f"{MIGRATIONS}/{newest_migration()}").decode().strip()
    )
    revision = f"{added}^" if added else "HEAD"
    return git("rev-parse", "--verify", f"{revision}^{{commit}}").decode().strip()


def unpack(commit: str, folder: Path) -> Path:
    """The package as it was."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "django_reliable_jobs"))) as archive:
        archive.extractall(folder, filter="data")
    return folder
