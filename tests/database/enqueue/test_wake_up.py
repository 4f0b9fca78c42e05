"""Protocol 11: workers hear of a job after its commit, outside of the caller's transaction, and not once for each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from django_reliable_jobs import conf, control
from django_reliable_jobs.models import Job
from django_reliable_jobs.store import notify
from tests.support.factories import JobFactory
from tests.support.probes.jobs import noop
from tests.support.sessions import PATIENCE, Session, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


class Ear:
    """Hears what workers would hear. A mark that takes the same way as the messages says that all of them have come."""

    def __init__(self) -> None:
        self.connection = psycopg.connect(
            **connection.get_connection_params() | {"cursor_factory": None}, autocommit=True
        )
        self.connection.execute("LISTEN django_reliable_jobs")
        self.marks = 0

    def heard(self) -> list[str]:
        """Everything since the last call, up to now."""
        self.marks += 1
        mark = f"mark {self.marks}"
        with Session() as other:  # not in the transaction that the test may be in
            if conf.current().listen:
                other.do(notify.wake, "default", [mark])
            else:
                other.sql("SELECT pg_notify('django_reliable_jobs', %s)", [mark])
        got: list[str] = []
        until = time.monotonic() + PATIENCE
        while mark not in got:
            assert time.monotonic() < until, f"the mark did not come, only {got}"
            got += [note.payload for note in self.connection.notifies(timeout=0.2)]
        return [payload for payload in got if not payload.startswith("mark")]


@pytest.fixture
def ear() -> Iterator[Ear]:
    ear = Ear()
    ear.heard()
    yield ear
    ear.connection.close()


def test_a_job_is_announced_after_the_commit_and_not_before(ear: Ear) -> None:
    with transaction.atomic():
        noop.using(queue="mail", priority=3).enqueue()
        assert ear.heard() == []
    assert ear.heard() == ["work mail 3"]


def test_the_callers_transaction_never_notifies(ear: Ear) -> None:
    """A NOTIFY in it would serialise everybody's commits: it takes a lock that is held until the commit is on disk."""
    statements: list[str] = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "notify" in sql and connection.in_atomic_block:
            statements.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch), transaction.atomic():
        job = noop.enqueue()
        control.cancel(job)
        control.retry(job)
        control.resume_queue("default")
    assert statements == []
    assert ear.heard()


def test_a_rollback_announces_nothing(ear: Ear) -> None:
    with transaction.atomic():
        noop.enqueue()
        with transaction.atomic():
            noop.using(queue="inner").enqueue()
        transaction.set_rollback(True)
    with transaction.atomic():
        noop.using(queue="outer").enqueue()
        with transaction.atomic():
            noop.using(queue="inner").enqueue()
            transaction.set_rollback(True)
    assert ear.heard() == ["work outer 0"]


def test_what_is_not_due_is_not_announced(ear: Ear) -> None:
    noop.using(delay=60).enqueue()
    noop.using(delay=60).enqueue_many([(1,)])
    JobFactory(unique_key="k")
    noop.using(unique_key="k").enqueue()
    assert ear.heard() == []


def test_a_burst_is_announced_in_a_few_messages(ear: Ear) -> None:
    began = time.monotonic()
    for _ in range(300):
        noop.enqueue()
    took = time.monotonic() - began
    heard = ear.heard()
    assert set(heard) == {"work default 0"}
    assert len(heard) <= 2 + took / notify.QUIET, "one at once, then one for each quiet time"
    assert len(heard) < 300
    assert Job.objects.count() == 300


def test_a_bulk_enqueue_is_announced_once(ear: Ear) -> None:
    noop.enqueue_many([(number,) for number in range(20_000)])
    assert ear.heard() == ["work default 0"]


def test_each_queue_of_a_transaction_is_announced(ear: Ear) -> None:
    with transaction.atomic():
        for queue in ("a", "b", "a"):
            noop.using(queue=queue).enqueue()
    assert set(ear.heard()) == {"work a 0", "work b 0"}  # again for those that came after a pause


def test_a_message_carries_no_payload_of_the_job(ear: Ear) -> None:
    """FR-P07: a NOTIFY holds less than 8,000 bytes."""
    noop.using(queue="q" * 100, priority=-100).enqueue_many([(number,) for number in range(600)])
    assert ear.heard() == [f"work {'q' * 100} -100"]


def test_what_people_do_is_announced(ear: Ear) -> None:
    running, dead, waiting = JobFactory(running=True), JobFactory(dead=True, queue="d"), JobFactory(priority=4)
    control.cancel(running)
    assert ear.heard() == [f"cancel {running.locked_by}"]
    control.retry(dead)
    assert ear.heard() == ["work d 0"]
    control.run_now(waiting)
    assert ear.heard() == ["work default 4"]
    control.set_priority(waiting, 9)
    assert ear.heard() == ["work default 9"]
    control.resume_queue("default")
    assert ear.heard() == ["work"]


def test_a_failing_notification_does_no_harm(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(alias: str, name: str, params: Any, **options: Any) -> Any:
        raise RuntimeError("the queue of notifications is full")

    notify._notifiers.clear()
    monkeypatch.setattr(notify, "run_positional", fail)
    with transaction.atomic():
        noop.enqueue()
    noop.enqueue()
    wait_until(lambda: "they will poll" in caplog.text, "the failure is logged")
    assert Job.objects.count() == 2


def test_without_listen_nothing_is_sent(ear: Ear, settings: Any) -> None:
    settings.RELIABLE_JOBS = {"LISTEN": False}
    noop.enqueue()
    assert ear.heard() == []
