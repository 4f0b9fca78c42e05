"""The tables: what the database itself refuses, and what a row shows."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction

import django_reliable_jobs
from django_reliable_jobs import payload
from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.store.statements import load
from tests.support.factories import (
    JobAttemptFactory,
    JobCheckpointFactory,
    JobFactory,
    QueueStateFactory,
    WorkerFactory,
    next_token,
)
from tests.support.sessions import fetch

pytestmark = pytest.mark.django_db

FOLDER = Path(django_reliable_jobs.__file__).parent / "store" / "sql"
STATEMENTS = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.sql"))


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("status = 'LOST'", "reliable_jobs_status_known"),
        ("status = 'RUNNING'", "reliable_jobs_running_has_lease"),
        ("status = 'RUNNING', locked_by = gen_random_uuid(), fencing_token = 1", "reliable_jobs_running_has_lease"),
        ("status = 'RUNNING', locked_until = now(), fencing_token = 1", "reliable_jobs_running_has_lease"),
        ("status = 'RUNNING', locked_by = gen_random_uuid(), locked_until = now()", "reliable_jobs_running_has_lease"),
        ("priority = 101", "reliable_jobs_priority_range"),
        ("priority = -101", "reliable_jobs_priority_range"),
    ],
)
def test_a_row_that_makes_no_sense_cannot_be_written(change: str, constraint: str) -> None:
    JobFactory()
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        fetch(f"UPDATE django_reliable_jobs_job SET {change}")
    fetch("UPDATE django_reliable_jobs_job SET status = 'DONE', priority = 100")


@pytest.mark.parametrize("trait", ["queued", "failed", "running"])
def test_two_unfinished_jobs_cannot_have_one_unique_key(trait: str) -> None:
    JobFactory(unique_key="k", **({} if trait == "queued" else {trait: True}))
    JobFactory(unique_key=None), JobFactory(unique_key=None)
    with pytest.raises(IntegrityError, match="reliable_jobs_unique_scope"), transaction.atomic():
        JobFactory(unique_key="k")


def test_finished_jobs_may_share_a_unique_key_but_not_an_idempotency_key() -> None:
    for trait in ("done", "dead", "cancelled"):
        JobFactory(unique_key="k", **{trait: True})
    JobFactory(unique_key="k", done=True, idempotency_key="i")
    with pytest.raises(IntegrityError, match="reliable_jobs_idempotency_scope"), transaction.atomic():
        JobFactory(idempotency_key="i")


def test_an_attempt_is_unique_by_job_and_token() -> None:
    attempt = JobAttemptFactory()
    JobAttemptFactory(job=attempt.job, attempt=attempt.attempt)
    with pytest.raises(IntegrityError, match="reliable_jobs_attempt_unique"), transaction.atomic():
        JobAttemptFactory(job=attempt.job, fencing_token=attempt.fencing_token, attempt=2)


def test_arguments_and_value_are_what_the_handler_sees() -> None:
    args, kwargs = payload.dumps_call([Decimal("1.10")], {"a": {"$x": 1}}, [], 1000)
    job = JobFactory()
    fetch(
        "UPDATE django_reliable_jobs_job SET args = %s, kwargs = %s, result = %s",
        [args, kwargs, payload.dumps([Decimal("2.0")], "the result")],
    )
    job.refresh_from_db()
    assert job.arguments == ([Decimal("1.10")], {"a": {"$x": 1}})
    assert str(job.value[0]) == "2.0"
    assert JobFactory().value is None
    assert JobFactory().created is None


def test_rows_say_what_they_are() -> None:
    job = JobFactory()
    assert str(job) == f"probes.noop #{job.pk}"
    assert str(JobAttemptFactory(job=job, attempt=2)) == f"attempt 2 of job {job.pk}"
    assert str(JobCheckpointFactory(job=job)) == f"checkpoint 1 of job {job.pk}"
    assert str(QueueStateFactory(queue="mail")) == "mail"
    assert str(WorkerFactory(host="h", pid=7)) == "h:7"


def test_tokens_rise_and_are_never_given_twice() -> None:
    tokens = [next_token() for _ in range(10)]
    assert tokens == sorted(set(tokens))
    [(cache, cycle)] = fetch(
        "SELECT cache_size, cycle FROM pg_sequences WHERE sequencename = 'django_reliable_jobs_fencing_token'"
    )
    assert (cache, cycle) == (1, False), "a cached number would be handed out after another session's greater one"


def test_the_models_need_no_further_migration() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.parametrize("setting", ["django.db.models.AutoField", "django.db.models.SmallAutoField"])
def test_a_projects_auto_field_makes_no_migration(setting: str, settings: Any) -> None:
    settings.DEFAULT_AUTO_FIELD = setting
    call_command("makemigrations", "django_reliable_jobs", "--check", "--dry-run", verbosity=0)


def test_the_migrations_can_be_undone_and_done_again() -> None:
    call_command("migrate", "django_reliable_jobs", "zero", verbosity=0)
    tables = connection.introspection.table_names()
    assert not [name for name in tables if name.startswith("django_reliable_jobs")]
    assert fetch("SELECT count(*) FROM pg_sequences WHERE sequencename LIKE 'django_reliable_jobs%%'", []) == [(0,)]
    call_command("migrate", "django_reliable_jobs", verbosity=0)
    assert JobFactory().status == JobStatus.QUEUED


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_names_tables_that_exist_and_says_what_it_is_for(name: str) -> None:
    text = (FOLDER / f"{name}.sql").read_text()
    assert text.startswith("--")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    tables = {model._meta.db_table for model in apps.get_app_config("django_reliable_jobs").get_models()}
    named = set(re.findall(r"\bdjango_reliable_jobs_\w+", code))
    assert named <= tables | {"django_reliable_jobs_fencing_token"}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_that_walks_the_jobs_has_a_limit(name: str) -> None:
    """What picks its rows by a condition, and not by ids or keys that it is given, says how many at most."""
    code = load(name)
    given = any(
        f"%({what})s" in code for what in ("job_ids", "job_id", "unique_key", "unique_keys", "worker", "workers")
    )
    if "django_reliable_jobs_job AS job" in code and not given:
        assert "LIMIT" in code


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_that_waits_for_jobs_locks_them_in_the_order_of_ids(name: str) -> None:
    """Protocol 5; a plan that happens to lock in that order is no promise."""
    code = load(name)
    for lock in re.findall(r"(ORDER BY job\.id\s+)?FOR (?:NO KEY )?UPDATE OF job( SKIP LOCKED)?", code):
        assert any(lock)


def test_job_rows_are_read_where_they_are_written() -> None:
    assert Job.objects.db == "default"
