"""P07: a unique or an idempotency key belongs to the job, under all the names that it has or had."""

from __future__ import annotations

from typing import Any

import pytest

from django_reliable_jobs import control
from django_reliable_jobs.definition import JobDefinition
from django_reliable_jobs.errors import AlreadyEnqueued, ReliableJobsError
from django_reliable_jobs.models import Job
from django_reliable_jobs.store import operator
from tests.factories import JobFactory, ago
from tests.probes.jobs import echo, noop
from tests.races.sessions import fetch

pytestmark = pytest.mark.django_db


def handler(value: Any = None) -> None:
    """What it does is of no matter."""


BEFORE = JobDefinition(handler, "shop.bill")
AFTER = JobDefinition(handler, "billing.bill", aliases=("shop.bill",))
#: As a person may write it who renames a second time.
LATER = JobDefinition(handler, "billing.invoice", aliases=("billing.bill", "shop.bill"))


@pytest.fixture
def before_the_last_migration() -> None:
    """The indexes that the last migration drops are there beside the new ones."""
    fetch(
        "CREATE UNIQUE INDEX IF NOT EXISTS reliable_jobs_unique_key ON django_reliable_jobs_job (unique_key)"
        " WHERE unique_key IS NOT NULL AND status IN ('QUEUED', 'RUNNING', 'FAILED')"
    )
    fetch(
        "CREATE UNIQUE INDEX IF NOT EXISTS reliable_jobs_idempotency_key ON django_reliable_jobs_job (idempotency_key)"
        " WHERE idempotency_key IS NOT NULL"
    )


def test_the_scope_of_a_row_is_the_oldest_name() -> None:
    assert [BEFORE.enqueue().scope, AFTER.enqueue().scope, noop.enqueue().scope] == ["shop.bill"] * 2 + ["probes.noop"]
    AFTER.enqueue_many([(1,), (2,)])
    assert set(Job.objects.values_list("scope", flat=True)) == {"shop.bill", "probes.noop"}


@pytest.mark.parametrize("schema", ["between", "now"])
@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
@pytest.mark.parametrize(("first", "second"), [(BEFORE, AFTER), (AFTER, BEFORE), (AFTER, LATER), (LATER, AFTER)])
def test_a_rename_makes_no_duplicates_in_either_direction_of_a_deploy(
    first: JobDefinition, second: JobDefinition, kind: Any, schema: str, request: pytest.FixtureRequest
) -> None:
    if schema == "between":
        request.getfixturevalue("before_the_last_migration")
    options: Any = {kind: "k"}
    held = first.using(**options).enqueue(1)
    got = second.using(**options).enqueue(2)
    assert (got.pk, got.created) == (held.pk, False)
    assert second.using(**options).enqueue_many([(3,)]) == [held.pk]
    with pytest.raises(AlreadyEnqueued):
        second.using(**options, if_exists="raise").enqueue(4)
    if kind == "unique_key":
        assert second.using(**options, if_exists="replace").enqueue(5).args == [5]
    assert Job.objects.count() == 1


@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
@pytest.mark.parametrize("name", ["shop.bill", "billing.bill"])
def test_a_row_of_older_code_holds_its_keys_under_any_name(name: str, kind: Any) -> None:
    """Older code stores no scope, and may have the new name already."""
    options: Any = {kind: "k"}
    held = JobFactory(name=name, **options)
    assert AFTER.using(**options).enqueue(1).pk == held.pk
    assert AFTER.using(**options).enqueue_many([(2,)]) == [held.pk]
    assert Job.objects.count() == 1


def test_a_replaced_row_goes_on_with_the_new_name_and_holds_the_key_as_before() -> None:
    held = JobFactory(name="shop.bill", unique_key="k")
    got = AFTER.using(unique_key="k", if_exists="replace").enqueue(1)
    assert (got.pk, got.name, got.scope) == (held.pk, "billing.bill", "shop.bill")
    assert BEFORE.using(unique_key="k").enqueue(2).pk == held.pk


@pytest.mark.usefixtures("before_the_last_migration")
@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
def test_before_the_last_migration_another_jobs_key_is_an_error_and_nobodys_job(kind: Any) -> None:
    options: Any = {kind: "k"}
    held = echo.using(**options).enqueue("echo")
    for if_exists in ("keep", "raise", "replace"):
        with pytest.raises(ReliableJobsError, match=f"job {held.pk} of probes.echo .* migrations"):
            noop.using(**options, if_exists=if_exists).enqueue()
    with pytest.raises(ReliableJobsError, match="migrations"):
        noop.using(**options).enqueue_many([()])
    assert Job.objects.get().args == ["echo"]
    assert noop.enqueue().created, "the transaction is usable"


@pytest.mark.usefixtures("before_the_last_migration")
def test_before_the_last_migration_a_job_that_is_being_cancelled_is_returned() -> None:
    held = JobFactory(name=echo.name, running=True, unique_key="k", cancel_requested_at=ago(1))
    assert echo.using(unique_key="k").enqueue("new").pk == held.pk
    assert echo.using(unique_key="k").enqueue_many([("new",)]) == [held.pk]


@pytest.mark.usefixtures("before_the_last_migration")
def test_before_the_last_migration_a_retry_is_refused_by_another_jobs_key() -> None:
    dead, other = JobFactory(name=echo.name, dead=True, unique_key="k"), JobFactory(dead=True)
    holder = JobFactory(unique_key="k")
    assert operator.retry("default", dead.pk) == operator.Clash(dead.pk, holder.pk)
    report = control.retry([dead.pk, other.pk])
    assert report.changed == [other.pk]
    assert str(holder.pk) in report.skipped[dead.pk]
