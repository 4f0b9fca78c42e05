"""Bulk enqueue in one session."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from django_reliable_jobs import AlreadyEnqueued, PayloadError
from django_reliable_jobs.models import Job
from django_reliable_jobs.store import insert
from tests.support.factories import EchoFactory
from tests.support.probes.jobs import echo, nap, noop

pytestmark = pytest.mark.django_db


def test_thousands_are_one_statement(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(1):
        ids = echo.enqueue_many([(number,) for number in range(3000)])
    stored = dict(Job.objects.values_list("id", "args"))
    assert [stored[job_id] for job_id in ids] == [[number] for number in range(3000)]


def test_nothing_is_nothing(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(0):
        assert noop.enqueue_many([]) == []


def test_calls_are_sequences_or_mappings() -> None:
    ids = nap.using(delay=5, priority=3).enqueue_many([(1,), [2, "two"], {"seconds": 3}])
    jobs = Job.objects.in_bulk(ids)
    assert [jobs[job_id].arguments for job_id in ids] == [([1], {}), ([2, "two"], {}), ([], {"seconds": 3})]
    assert {job.priority for job in jobs.values()} == {3}
    assert all(job.run_at > timezone.now() + timedelta(seconds=1) for job in jobs.values())
    with pytest.raises(TypeError, match="call 1 of enqueue_many is a int"):
        noop.enqueue_many([(1,), 2])  # type: ignore[list-item]


def test_one_key_makes_one_job_in_the_order_of_the_calls() -> None:
    held = EchoFactory(unique_key="k2")
    done = EchoFactory(unique_key="k3", done=True)
    ids = echo.using(unique_key=lambda value: value and f"k{value}").enqueue_many(
        [(3,), (1,), (2,), (1,), (None,), (None,)]
    )
    assert ids[1] == ids[3]
    assert ids[2] == held.pk
    assert ids[0] != done.pk
    assert len(set(ids)) == 5
    assert [Job.objects.get(pk=job_id).args for job_id in ids] == [[3], [1], [], [1], [None], [None]]


def test_idempotency_keys_in_bulk() -> None:
    first = EchoFactory(idempotency_key="i1", done=True)
    bulk = echo.using(idempotency_key=lambda value: f"i{value}")
    ids = bulk.enqueue_many([(2,), (1,), (2,)])
    assert ids == [ids[0], first.pk, ids[0]]
    assert bulk.enqueue_many([(1,), (2,)]) == [first.pk, ids[0]]


def test_both_kinds_of_keys_in_bulk() -> None:
    """A call that shares one key with one call and the other key with another."""
    bulk = echo.using(unique_key=lambda value: value["u"], idempotency_key=lambda value: value["i"])
    calls: list[Any] = [{"u": "u1", "i": "i1"}, {"u": "u1", "i": "i2"}, {"u": "u2", "i": "i2"}, {"u": None, "i": "i1"}]
    ids = bulk.enqueue_many([(call,) for call in calls])
    assert (ids[0], ids[1]) == (ids[3], ids[2]), "the idempotency key is asked first"
    assert Job.objects.count() == 2
    assert bulk.enqueue_many([(call,) for call in calls]) == ids


@pytest.mark.parametrize("bad", [(2, 3), {"nonsense": 1}, ()])
def test_one_call_with_wrong_arguments_stores_none(bad: Any) -> None:
    with transaction.atomic():
        with pytest.raises(TypeError, match=r"probes\.echo"):
            echo.enqueue_many([(1,), bad])
        noop.enqueue()
    assert Job.objects.count() == 1


def test_one_value_that_cannot_be_stored_stores_none() -> None:
    with pytest.raises(PayloadError, match=r"probes\.echo: argument 'value'"):
        echo.enqueue_many([(1,), ({1},)])
    assert not Job.objects.exists()


def test_raise_stores_none(monkeypatch: pytest.MonkeyPatch) -> None:
    held = EchoFactory(unique_key="k1")
    bulk = echo.using(unique_key=lambda value: f"k{value}", if_exists="raise")
    with pytest.raises(AlreadyEnqueued, match="holds the key 'k1'") as caught:
        bulk.enqueue_many([(0,), (1,), (2,)])
    assert caught.value.job.pk == held.pk
    assert Job.objects.count() == 1
    with pytest.raises(AlreadyEnqueued, match="'k5'"):
        bulk.enqueue_many([(5,), (5,)])
    assert Job.objects.count() == 1


def test_replace_is_refused() -> None:
    with pytest.raises(TypeError, match="replace"):
        noop.using(unique_key="k", if_exists="replace").enqueue_many([(1,)])


def test_more_than_one_statement_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert, "CHUNK", 10)
    ids = echo.enqueue_many([(number,) for number in range(25)])
    assert [Job.objects.get(pk=job_id).args for job_id in ids] == [[number] for number in range(25)]
    keyed = echo.using(unique_key=lambda value: f"k{value % 20}")
    ids = keyed.enqueue_many([(number,) for number in range(25)])
    assert ids[:5] == ids[20:]
    assert len(set(ids)) == 20


def test_keys_are_taken_in_one_order_over_all_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bulk enqueues of the same keys then wait for each other; in two orders they would deadlock."""
    monkeypatch.setattr(insert, "CHUNK", 3)
    seen: list[str] = []
    run = insert.run

    def recording(alias: str, name: str, params: Any) -> Any:
        seen.extend(params["unique_keys"] if name == "insert_many" else ())
        return run(alias, name, params)

    monkeypatch.setattr(insert, "run", recording)
    noop.using(unique_key=lambda number: f"k{number}").enqueue_many(
        [(number,) for number in (9, 1, 8, 2, 7, 3, 6, 4, 5)]
    )
    assert seen == [f"k{number}" for number in range(1, 10)]
