"""The constraint on a job's moments comes to a table that rows beyond it are in, and that is in use (P01)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from importlib import import_module

import pytest
from django.apps import apps
from django.db import connection, connections, transaction
from django.db.migrations.state import ProjectState

from django_reliable_jobs.models import Job
from tests.support.factories import JobFactory
from tests.support.poison import COLUMNS, MOMENTS, drop_the_constraint, poison

pytestmark = pytest.mark.django_db(transaction=True)

migration = import_module("django_reliable_jobs.migrations.0007_job_calendar")


@pytest.fixture
def before() -> Iterator[None]:
    """The table without the constraint, and with it again."""
    drop_the_constraint()
    yield
    Job.objects.all().delete()
    if not is_valid():
        forwards()


def forwards() -> None:
    """The migration's operation, on the tables as they are today: later ones may not be undone for a test of this one."""
    state = ProjectState.from_apps(apps)
    [operation] = migration.Migration.operations
    with connection.schema_editor(atomic=migration.Migration.atomic) as editor:
        operation.database_forwards("django_reliable_jobs", editor, state, state)


def poisoned() -> list[Job]:
    jobs = [JobFactory(running=True) for _ in COLUMNS for _ in MOMENTS]
    for number, job in enumerate(jobs):
        poison(f"{COLUMNS[number % len(COLUMNS)]} = '{MOMENTS[number // len(COLUMNS)]}'", job.pk)
    return jobs


def is_valid() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT convalidated FROM pg_constraint WHERE conname = 'reliable_jobs_calendar'")
        return cursor.fetchall() == [(True,)]


def test_rows_that_are_beyond_it_are_mended(before: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "BATCH", 7)
    jobs, good = poisoned(), JobFactory()
    forwards()
    assert is_valid()
    assert Job.objects.count() == len(jobs) + 1
    assert Job.objects.filter(pk__in=[job.pk for job in jobs]).update(reason="can be changed") == len(jobs)
    assert Job.objects.get(pk=good.pk).run_at == good.run_at


def test_an_interrupted_run_is_repeated(before: None) -> None:
    """It was cut off between the constraint and its validation, with rows that are beyond it."""
    poisoned()
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE django_reliable_jobs_job ADD CONSTRAINT reliable_jobs_calendar"
            " CHECK (run_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999999+00') NOT VALID"
        )
    forwards()
    assert is_valid()


def test_who_waits_behind_a_long_transaction_keeps_nobody_waiting_long(before: None) -> None:
    """ALTER TABLE waits for a transaction that has only read; meanwhile jobs are enqueued and claimed."""
    errors: list[BaseException] = []
    slowest = 0.0

    def migrate() -> None:
        try:
            forwards()
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=migrate)
    with transaction.atomic():
        assert not Job.objects.exists()  # holds a lock on the table
        thread.start()
        tried = 0
        until = time.monotonic() + 60
        while tried < 2 and time.monotonic() < until:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
                    " AND relation = 'django_reliable_jobs_job'::regclass"
                )
                if not cursor.fetchone()[0]:
                    time.sleep(0.01)
                    continue
            slowest = max(slowest, enqueue_in_a_thread())
            tried += 1
    thread.join()
    assert not errors
    assert tried == 2
    assert slowest < 10, "a machine that is busy; the lock is waited for in tries of half a second"
    assert is_valid()


def enqueue_in_a_thread() -> float:
    began = time.monotonic()

    def enqueue() -> None:
        JobFactory()
        connections.close_all()

    thread = threading.Thread(target=enqueue)
    thread.start()
    thread.join()
    return time.monotonic() - began
