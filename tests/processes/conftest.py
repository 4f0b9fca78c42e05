"""Fixtures for tests with worker processes.

`fleet` is for tests that start, stop and kill workers: the database is emptied after each of them. `crew` is one fleet
for a whole module, for tests that look at their own jobs only and leave the worker as they found it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.db.backends.base.creation import TEST_DATABASE_PREFIX
from django.test.utils import setup_databases, teardown_databases
from pytest_django import DjangoDbBlocker

from testproject.postgres import PROJECT_ROOT, url_of
from tests.support.fleet import Fleet


@pytest.fixture
def fleet(subprocess_env: dict[str, str], tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(subprocess_env, tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def test_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """pytest-django makes the database only where a test asks for it by a mark or one of its own fixtures."""
    if connection.settings_dict["NAME"].startswith(TEST_DATABASE_PREFIX):
        yield
        return
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=0, interactive=False, aliases={"default"})
    yield
    with django_db_blocker.unblock():
        teardown_databases(made, verbosity=0)


@pytest.fixture(scope="module")
def crew(
    test_database: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    with django_db_blocker.unblock():
        env = {**os.environ, "DATABASE_URL": url_of(connection.settings_dict), "PYTHONPATH": str(PROJECT_ROOT)}
        made = Fleet(env, tmp_path_factory.mktemp("crew"))
        yield made
        made.close()
        call_command("flush", interactive=False, verbosity=0)
        connections.close_all()
