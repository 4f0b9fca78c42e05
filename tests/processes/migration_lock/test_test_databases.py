"""Test databases are migrated under the lock too, and never by the direct alias, which leads to the real database."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from testproject.postgres import PROJECT_ROOT
from tests.support.migrate.runs import Look, Migrators

MakeMigrators = Callable[..., Migrators]

SCRIPT = """
import django
django.setup()
from django.test.utils import setup_databases, setup_test_environment, teardown_databases
from django.db import connections
setup_test_environment()
old = setup_databases(verbosity=1, interactive=False)
for alias in connections:
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database(), (SELECT count(*) FROM depot_event)")
        print(alias, *cursor.fetchone())
    connection.close()
teardown_databases(old, verbosity=1)
"""


def test_the_direct_alias_is_left_alone_while_test_databases_are_made(
    migrators: MakeMigrators, database: str, look: Look
) -> None:
    env = migrators(MIGRATE_DATABASE_URL=database).env
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, cwd=PROJECT_ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    name = f"test_{look.column('SELECT current_database()')[0]}"
    assert done.stdout.splitlines()[-2:] == [f"default {name} 4", f"straight {name} 4"]
    assert done.stderr.count("Creating test database") == 1
    assert look.rows("SELECT FROM pg_class WHERE relname = 'django_migrations'") == []
