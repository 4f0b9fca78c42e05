"""An import of 100 records whose worker is killed after 60: the next attempt skips those and does the 40, once each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from django_reliable_jobs.models import Job, JobAttempt, JobCheckpoint, JobStatus
from testproject.postgres import PROJECT_ROOT
from testproject.shop import jobs, orders
from testproject.shop.catalogue import read_records
from testproject.shop.models import Import, ImportedRecord, Product, StockMove

SETTINGS = {"LEASE": 2, "POLL": 0.2, "BACKOFF": {"base": 0.1, "cap": 1}}


class Workers:
    """`manage.py jobworker` processes, each in a session of its own, so that a signal reaches all of one."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self.env = env
        self.folder = folder
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self, **env: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "manage.py", "jobworker", "--slots", "2", "--queues", "imports"]
        with (self.folder / f"{len(self.all)}.log").open("wb") as log:
            self.all.append(
                subprocess.Popen(
                    command, cwd=PROJECT_ROOT, env=self.env | env, stdout=log, stderr=log, start_new_session=True
                )
            )
        return self.all[-1]

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(30)

    def log(self) -> str:
        """What all of them said, in the order of their starts."""
        return "".join((self.folder / f"{number}.log").read_text() for number in range(len(self.all)))


@pytest.fixture
def workers(subprocess_env: dict[str, str], tmp_path: Path) -> Iterator[Workers]:
    found = Workers(subprocess_env | {"RELIABLE_JOBS_JSON": json.dumps(SETTINGS)}, tmp_path)
    yield found
    for worker in found.all:
        if worker.poll() is None:
            found.kill(worker)


def wait_for(condition: Callable[[], object], workers: Workers, seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, f"It did not come to that.\n{workers.log()}"
        time.sleep(0.02)


def upload() -> tuple[Import, Job]:
    batch = orders.upload("catalogue", read_records())
    return batch, Job.objects.get(name=jobs.import_records.name, idempotency_key=f"import:{batch.pk}")


def assert_each_record_once(batch: Import) -> None:
    """By the rows that the import left, and by the counters, which a record done twice would have raised twice."""
    records = read_records()
    assert Counter(batch.imported.values_list("number", flat=True)) == Counter(range(1, 101))
    assert dict(Product.objects.values_list("sku", "stock")) == {one["sku"]: int(one["quantity"]) for one in records}
    assert StockMove.objects.count() == 100


def test_an_import_killed_after_60_of_100_skips_them_and_does_the_40_once_each(
    workers: Workers, database_url: str
) -> None:
    batch, job = upload()
    record_61 = read_records()[60]
    Product.objects.create(**{name: record_61[name] for name in ("sku", "title", "author", "year", "price")})
    with psycopg.connect(database_url) as blocker:
        # The batch behind record 60 waits for this lock, so the kill finds exactly 60 done and the next ones begun.
        blocker.execute("SELECT * FROM shop_product WHERE sku = %s FOR UPDATE", [record_61["sku"]])
        first = workers.start()
        wait_for(lambda: is_waited_for(blocker), workers)
        assert batch.imported.count() == 60
        workers.kill(first)
    assert JobCheckpoint.objects.get(job=job).value == {"done": 60}
    assert Job.objects.get(pk=job.pk).status == JobStatus.RUNNING, "nobody has noticed yet"

    workers.start()
    wait_for(lambda: Job.objects.get(pk=job.pk).status == JobStatus.DONE, workers)

    assert_each_record_once(batch)
    by_attempt = {attempt: numbers_of(batch, attempt) for attempt in (1, 2)}
    assert by_attempt == {1: list(range(1, 61)), 2: list(range(61, 101))}
    assert len(set(ImportedRecord.objects.values_list("attempt", "fencing_token"))) == 2
    job.refresh_from_db()
    assert (job.attempts, job.losses, job.value) == (2, 1, {"records": 100})
    assert list(JobAttempt.objects.filter(job=job).values_list("attempt", "reason")) == [(1, "lost")]
    assert f"shop.import_records #{job.pk}/2: resumes at 60 of 100" in workers.log()
    batch.refresh_from_db()
    assert batch.finished_at is not None


def test_an_import_killed_again_and_again_still_does_each_record_once(workers: Workers) -> None:
    batch, job = upload()
    for target in (20, 40, 60):
        worker = workers.start(SHOP_LATENCY="0.25")
        wait_for(lambda target=target: batch.imported.count() >= target, workers)
        workers.kill(worker)
    workers.start()
    wait_for(lambda: Job.objects.get(pk=job.pk).status not in (JobStatus.QUEUED, JobStatus.RUNNING), workers)

    job.refresh_from_db()
    assert job.status == JobStatus.DONE
    assert job.losses >= 1
    assert job.attempts == job.losses + 1
    assert_each_record_once(batch)


def is_waited_for(connection: psycopg.Connection[object]) -> bool:
    """Whether another session waits for a lock that this one holds."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
    with psycopg.connect(connection.info.dsn, password=connection.info.password, autocommit=True) as other:
        row = other.execute(query, [connection.info.backend_pid]).fetchone()
    return row is not None and row[0] > 0


def numbers_of(batch: Import, attempt: int) -> list[int]:
    return list(batch.imported.filter(attempt=attempt).order_by("number").values_list("number", flat=True))
