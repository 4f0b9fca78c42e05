"""The workers' pruning: batches that fit the time they are given, kinds that do not wait for each other, attempts kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import OperationalError, connection, connections
from django.utils import timezone

from django_reliable_jobs.connections.own_connection import cancel_query, own_connection
from django_reliable_jobs.connections.statement_deadline import StatementDeadline
from django_reliable_jobs.models import CronRun, Job, JobAttempt
from django_reliable_jobs.store.prune import LOOKED_AT, prune_attempts
from django_reliable_jobs.values.batch_size import BatchSize
from django_reliable_jobs.worker.maintenance import pruning as pruning_module
from django_reliable_jobs.worker.maintenance.pruning import Pruning
from tests.support.factories import JobAttemptFactory, JobFactory, ago
from tests.support.fleet import wait_until

pytestmark = pytest.mark.django_db

DAY = 86_400


class Impatient(threading.Thread):
    """Has the server cancel each statement of this connection that takes longer than `limit` seconds."""

    def __init__(self, limit: float) -> None:
        super().__init__(daemon=True)
        self.raw = connections["default"].connection
        self.pid = self.raw.info.backend_pid
        self.limit, self.given_up, self.over = limit, 0, threading.Event()

    def run(self) -> None:
        with own_connection("default", "test") as watching, watching.cursor() as cursor:
            while not self.over.wait(0.02):
                cursor.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'active'"
                    " AND clock_timestamp() - query_start > make_interval(secs => %s)", [self.pid, self.limit],
                )  # fmt: skip
                if cursor.fetchone():
                    self.given_up += 1
                    cancel_query(self.raw)


@pytest.fixture
def slow_to_delete(transactional_db: None) -> Iterator[None]:
    """The deletion of one job takes 50 ms."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE OR REPLACE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(0.05); RETURN OLD; END $$"
        )
        cursor.execute(
            "CREATE OR REPLACE TRIGGER d BEFORE DELETE ON django_reliable_jobs_job FOR EACH ROW EXECUTE FUNCTION dawdle()"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER d ON django_reliable_jobs_job")
        cursor.execute("DROP FUNCTION dawdle()")


@pytest.mark.django_db(transaction=True)
def test_a_batch_that_is_given_up_is_tried_with_fewer_rows(
    slow_to_delete: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P25: 60 rows take 3 s, and a statement gets 1 s. Another kind does not wait until that has worked."""
    monkeypatch.setattr(pruning_module, "BATCH", 100)
    JobFactory.create_batch(60, done=True, finished_at=ago(8 * DAY))
    CronRun.objects.create(
        name="old", scheduled_for=timezone.now(), outcome="error", fired_at=timezone.now() - timedelta(days=91)
    )
    pruning = Pruning("default", StatementDeadline(4.0))
    pruning._at = 0.0
    left_at_the_first_success_elsewhere: list[int] = []
    connection.ensure_connection()
    impatient = Impatient(1.0)
    impatient.start()

    def done() -> bool:
        try:
            pruning.when_due(connection)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != "57014":
                raise
        if not CronRun.objects.exists() and not left_at_the_first_success_elsewhere:
            left_at_the_first_success_elsewhere.append(Job.objects.count())
        return not Job.objects.exists()

    try:
        wait_until(done, "all to be pruned", 120)
    finally:
        impatient.over.set()
        impatient.join()
    assert impatient.given_up >= 1
    assert left_at_the_first_success_elsewhere[0] > 0


@pytest.mark.django_db(transaction=True)
def test_pruning_does_one_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of old rows are no reason not to reap for as long as it takes to delete them."""
    monkeypatch.setattr(pruning_module, "BATCH", 10)
    JobFactory.create_batch(25, done=True, finished_at=ago(8 * DAY))
    pruning = Pruning("default", StatementDeadline(15.0))
    pruning._at = 0.0
    counts = []
    for _ in range(3):
        pause = pruning.when_due(connection)
        counts.append(Job.objects.count())
        assert pause < 5, "not as long as between two rounds"
        pruning._at = 0.0
    assert counts == [15, 5, 0]


def test_the_size_of_a_batch_follows_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    size = BatchSize(1000, 4.0)

    def one(took: float, *, fails: bool = False) -> int:
        try:
            with size.of_one():
                now[0] += took
                if fails:
                    raise OperationalError
        except OperationalError:
            pass
        return size.now

    assert [one(15, fails=True) for _ in range(12)][-5:] == [3, 1, 1, 1, 1]
    assert [one(0.1) for _ in range(12)][-3:] == [1000, 1000, 1000]
    assert [one(5), one(1), one(0.4)] == [500, 500, 1000]


def attempts_of(job: Job) -> list[int]:
    return list(JobAttempt.objects.filter(job=job).order_by("fencing_token").values_list("fencing_token", flat=True))


def many(job: Job, tokens: range) -> None:
    JobAttempt.objects.bulk_create(
        JobAttemptFactory.build(job=job, fencing_token=token, attempt=token) for token in tokens
    )


def test_of_a_jobs_attempts_the_first_and_the_newest_are_kept() -> None:
    """P26: a job without a limit that fails at once."""
    endless, few, exact = JobFactory.create_batch(3, failed=True)
    many(endless, range(1, 1000))
    many(few, range(2001, 2008))
    many(exact, range(3001, 3012))
    assert [prune_attempts("default", 10, 600) for _ in range(3)] == [600, 388, 0]
    assert attempts_of(endless) == [1, *range(990, 1000)]
    assert attempts_of(few) == list(range(2001, 2008))
    assert attempts_of(exact) == list(range(3001, 3012))


def test_a_job_beside_a_busier_one_has_its_turn() -> None:
    busy, quiet = JobFactory.create_batch(2, failed=True)
    many(quiet, range(1, 51))
    many(busy, range(1001, 1001 + LOOKED_AT))
    while prune_attempts("default", 10, 1000):
        pass
    assert attempts_of(busy)[0] == 1001
    assert len(attempts_of(busy)) == len(attempts_of(quiet)) == 11


@pytest.mark.django_db(transaction=True)
def test_maintenance_keeps_as_many_as_the_setting_says(settings: pytest.FixtureRequest) -> None:
    settings.RELIABLE_JOBS = {"KEEP_ATTEMPTS": 3}  # type: ignore[attr-defined]
    job = JobFactory(failed=True)
    many(job, range(1, 21))
    pruning = Pruning("default", StatementDeadline(15.0))
    for _ in range(10):
        pruning._at = 0.0
        pruning.when_due(connection)
    assert attempts_of(job) == [1, 18, 19, 20]
