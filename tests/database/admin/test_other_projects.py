"""Projects whose settings are not ours: their own user model, their language, their default key."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from testproject.postgres import PROJECT_ROOT, EmbeddedPostgres

SETTINGS = "tests.support.admin.people.settings"


def run(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=120, cwd=PROJECT_ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_user_model_of_the_projects_own(postgres: EmbeddedPostgres) -> None:
    environment = {**os.environ, "DATABASE_URL": postgres.create_database("people"), "PYTHONPATH": str(PROJECT_ROOT)}
    assert run(environment, "-m", "tests.support.admin.people.visit") == "QUEUED True probes.noop #1\n"


@pytest.mark.parametrize(
    ("language", "seed", "key"),
    [
        ("en-us", "0", "django.db.models.BigAutoField"),
        ("vi", "1", "django.db.models.AutoField"),
        ("de", "4711", "django.db.models.SmallAutoField"),
    ],
)
def test_no_setting_makes_a_migration(language: str, seed: str, key: str) -> None:
    """No database is needed; Django warns that there is none."""
    environment = {
        **os.environ, "PYTHONPATH": str(PROJECT_ROOT), "DATABASE_URL": "", "PYTHONHASHSEED": seed,
        "TEST_LANGUAGE": language, "TEST_AUTO_FIELD": key,
    }  # fmt: skip
    check = ("-m", "django", "makemigrations", "django_reliable_jobs", "--check", "--dry-run", "--settings", SETTINGS)
    run(environment, *check)
