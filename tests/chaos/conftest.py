"""A server for the chaos tests alone (they restart it), and arenas on it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from testproject.postgres import PROJECT_ROOT, EmbeddedPostgres
from tests.chaos import faults, faults_of_the_database  # noqa: F401 - registers the faults
from tests.chaos.arena import Arena
from tests.chaos.nemesis import choose_seed

TEMPLATE = "chaos_template"

ArenaFactory = Callable[..., Arena]


@pytest.fixture(scope="session")
def chaos_server() -> Iterator[EmbeddedPostgres]:
    """A server that is ours to kill, with a migrated database that others are copied from."""
    with EmbeddedPostgres(fast=True, tcp=True) as server:
        environment = {
            **os.environ,
            "DATABASE_URL": server.create_database(TEMPLATE),
            "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
            "PYTHONPATH": str(PROJECT_ROOT),
        }
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=PROJECT_ROOT, env=environment, check=True
        )
        yield server


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def arena(chaos_server: EmbeddedPostgres, _numbers: Iterator[int], tmp_path: Path) -> ArenaFactory:
    """Makes arenas, each on a database of its own."""

    def make(**options: Any) -> Arena:
        database = f"chaos_{next(_numbers)}"
        with psycopg.connect(chaos_server.url(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {database} TEMPLATE {TEMPLATE}".encode())
        directory = tmp_path / database
        directory.mkdir()
        return Arena(chaos_server, database, directory, choose_seed(), **options)

    return make
