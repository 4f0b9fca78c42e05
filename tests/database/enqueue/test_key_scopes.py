"""P07: a unique or an idempotency key belongs to the job, under all the names that it has or had."""

from __future__ import annotations

from typing import Any

import pytest

from django_reliable_jobs import control
from django_reliable_jobs.admin.jobs.paths import exact
from django_reliable_jobs.decorators import JobHandle
from django_reliable_jobs.errors import AlreadyEnqueued, ReliableJobsError
from django_reliable_jobs.models import Job
from django_reliable_jobs.store import control as control_store
from django_reliable_jobs.store import key_holders
from tests.support.factories import JobFactory, ago
from tests.support.probes.jobs import echo, noop
from tests.support.sessions import fetch

pytestmark = pytest.mark.django_db


def handler(value: Any = None) -> None:
    """What it does is of no matter."""


BEFORE = JobHandle(handler, "shop.bill")
AFTER = JobHandle(handler, "billing.bill", aliases=("shop.bill",))
#: As a person may write it who renames a second time.
LATER = JobHandle(handler, "billing.invoice", aliases=("billing.bill", "shop.bill"))


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
    first: JobHandle, second: JobHandle, kind: Any, schema: str, request: pytest.FixtureRequest
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


def test_a_bulk_enqueue_looks_the_holders_up_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_holders, "CHUNK", 3)
    held = AFTER.using(unique_key=lambda number: f"k{number}").enqueue_many([(number,) for number in range(0, 20, 2)])
    ids = LATER.using(unique_key=lambda number: f"k{number}").enqueue_many([(number,) for number in range(20)])
    assert ids[::2] == held
    assert Job.objects.count() == 20


def test_a_replaced_row_goes_on_with_the_new_name_and_holds_the_key_as_before() -> None:
    held = JobFactory(name="shop.bill", unique_key="k")
    got = AFTER.using(unique_key="k", if_exists="replace").enqueue(1)
    assert (got.pk, got.name, got.scope) == (held.pk, "billing.bill", "shop.bill")
    assert BEFORE.using(unique_key="k").enqueue(2).pk == held.pk


@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
def test_two_jobs_may_use_the_same_text(kind: Any) -> None:
    options: Any = {kind: "user-7"}
    mail, report = echo.using(**options).enqueue("mail"), noop.using(**options).enqueue()
    assert (mail.created, report.created) == (True, True)
    assert noop.using(**options).enqueue().pk == report.pk
    assert noop.using(**options).enqueue_many([(), ()]) == [report.pk] * 2
    assert BEFORE.using(**options).enqueue_many([(1,)]) not in ([mail.pk], [report.pk])
    assert echo.using(**options).enqueue("again").pk == mail.pk


def test_a_job_replaces_its_own_call_and_nobody_elses() -> None:
    mail, report = echo.using(unique_key="k").enqueue("mail"), BEFORE.using(unique_key="k").enqueue("report")
    assert BEFORE.using(unique_key="k", if_exists="replace").enqueue("new").pk == report.pk
    assert Job.objects.get(pk=mail.pk).args == ["mail"]


def test_a_job_expires_its_own_holder_and_nobody_elses() -> None:
    theirs = JobFactory(unique_key="k", expires_at=ago(1))
    ours = JobFactory(name=echo.name, unique_key="k", expires_at=ago(1))
    assert echo.using(unique_key="k").enqueue("new").created
    assert [Job.objects.get(pk=job.pk).status for job in (theirs, ours)] == ["QUEUED", "CANCELLED"]


def test_another_jobs_holder_does_not_keep_one_from_being_retried() -> None:
    holder = JobFactory(unique_key="k")
    jobs = [JobFactory(name=echo.name, dead=True, unique_key="k"), JobFactory(dead=True, unique_key="k")]
    renamed = JobFactory(name="a", scope="probes.noop", dead=True, unique_key="k")
    assert control.retry([job.pk for job in [*jobs, renamed]]).changed == [jobs[0].pk]
    assert control_store.retry("default", renamed.pk) == control_store.Clash(renamed.pk, holder.pk)


def test_of_two_jobs_that_are_retried_with_one_text_both_are_and_of_one_job_one() -> None:
    jobs = [JobFactory(name=name, dead=True, unique_key="k") for name in ("a", "b", "a")]
    report = control.retry([job.pk for job in jobs])
    assert report.changed == [jobs[0].pk, jobs[1].pk]


@pytest.mark.parametrize("if_exists", ["keep", "replace", "raise"])
def test_one_that_is_being_cancelled_holds_its_key_no_more(if_exists: Any) -> None:
    """P30: cancel, then enqueue; the second is not lost."""
    old = JobFactory(name=echo.name, running=True, unique_key="k")
    assert control.cancel(old.pk)
    new = echo.using(unique_key="k", if_exists=if_exists).enqueue("new")
    assert (new.created, new.status, new.args) == (True, "QUEUED", ["new"])
    assert echo.using(unique_key="k").enqueue_many([("third",)]) == [new.pk]
    now = Job.objects.get(pk=old.pk)
    assert (now.status, now.unique_key) == ("RUNNING", "k")


def test_a_cancelled_job_is_not_retried_beside_the_one_that_took_its_key() -> None:
    old = JobFactory(name=echo.name, running=True, unique_key="k", cancel_requested_at=ago(1))
    new = echo.using(unique_key="k").enqueue("new")
    Job.objects.filter(pk=old.pk).update(status="CANCELLED", locked_until=None)
    assert control_store.retry("default", old.pk) == control_store.Clash(old.pk, new.pk)


def test_the_search_finds_the_jobs_of_a_key_whosever_it_is() -> None:
    jobs = [JobFactory(name=name, unique_key="k") for name in ("a", "b")]
    jobs += [JobFactory(name="c", running=True, unique_key="k", cancel_requested_at=ago(1))]
    jobs += [JobFactory(name=name, done=True, idempotency_key="k") for name in ("a", "b")]
    JobFactory(name="a", done=True, unique_key="k")
    assert exact("k", Job.objects.all()) == [job.pk for job in jobs]


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
    assert control_store.retry("default", dead.pk) == control_store.Clash(dead.pk, holder.pk)
    report = control.retry([dead.pk, other.pk])
    assert report.changed == [other.pk]
    assert str(holder.pk) in report.skipped[dead.pk]
