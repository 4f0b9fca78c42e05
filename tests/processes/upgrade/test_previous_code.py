"""Protocol 32: the code of the commit before a migration works on the schema after it, and the code after it waits."""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from testproject.postgres import PROJECT_ROOT, EmbeddedPostgres, django_database
from tests.processes.upgrade.previous import commit_before_the_newest_migration, newest_migration, unpack
from tests.support.fleet import JobWorker

PROJECT = Path(__file__).parent / "project"
#: What a statement says in the log that does not fit the schema.
UNFIT = re.compile(r"trouble with|does not exist|violates|cannot be stored|Traceback", re.IGNORECASE)
LONG = 240.0


class Version:
    """The code of one tree, on one database."""

    def __init__(self, tree: Path, url: str, folder: Path) -> None:
        self.tree = tree
        self.url = url
        self.folder = folder
        self.started: list[JobWorker] = []
        database: dict[str, Any] = django_database(url)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("DJANGO_")} | {
            "DJANGO_SETTINGS_MODULE": "deploy.settings",
            "DEPLOY_DATABASE": json.dumps(
                {key: str(value) for key, value in database.items() if isinstance(value, str | int)}
            ),
            "PYTHONPATH": os.pathsep.join([str(tree), str(PROJECT)]),
        }

    def start(self, module: str, *arguments: str) -> JobWorker:
        log = self.folder / f"{self.tree.name}-{len(self.started)}.log"
        command: Sequence[str] = [sys.executable, "-m", module, *arguments]
        self.started.append(JobWorker(command, self.env, log, cwd=self.tree))
        return self.started[-1]

    def does(self, module: str, *arguments: str) -> None:
        run = self.start(module, *arguments)
        assert run.wait(LONG) == 0, "\n".join(each.tail() for each in self.started)

    def worker(self) -> JobWorker:
        return self.start("django", "jobworker", "--slots", "4")

    def close(self) -> None:
        for each in self.started:
            each.destroy()


@pytest.fixture
def url(postgres: EmbeddedPostgres) -> Iterator[str]:
    name = f"upgrade_{uuid.uuid4().hex[:12]}"
    yield postgres.create_database(name)
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def now(url: str, tmp_path: Path) -> Iterator[Version]:
    made = Version(PROJECT_ROOT, url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def before(url: str, tmp_path: Path) -> Iterator[Version]:
    made = Version(unpack(commit_before_the_newest_migration(), tmp_path / "before"), url, tmp_path)
    yield made
    made.close()


def test_the_code_before_works_on_the_new_schema(before: Version, now: Version) -> None:
    now.does("django", "migrate", "-v0")
    worker = before.worker()
    before.does("deploy.story", "keys", "work")
    assert worker.stop() == 0, worker.tail()
    assert not UNFIT.search(worker.text), worker.tail()


def test_a_worker_waits_for_the_migrations_of_its_code_and_takes_over_the_keys(before: Version, now: Version) -> None:
    before.does("django", "migrate", "-v0")
    before.does("deploy.story", "hold")
    worker = now.worker()
    worker.logged("migrations of django_reliable_jobs are not applied yet")
    with psycopg.connect(now.url, autocommit=True) as look:
        [(statuses,)] = look.execute("SELECT array_agg(DISTINCT status) FROM django_reliable_jobs_job").fetchall()
        applied = look.execute("SELECT name FROM django_migrations WHERE app = 'django_reliable_jobs'").fetchall()
    assert statuses == ["QUEUED"]
    assert (newest_migration().removesuffix(".py"),) not in applied
    now.does("django", "migrate", "-v0")
    now.does("deploy.story", "meet", "keys", "work")
    assert worker.stop() == 0, worker.tail()
