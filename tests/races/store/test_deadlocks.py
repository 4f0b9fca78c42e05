"""Protocol 5: whatever runs at once, no two statements wait for each other."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction

from django_reliable_jobs import StaleToken, control
from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.store import checkpoint
from django_reliable_jobs.store import control as control_store
from django_reliable_jobs.store.exchange import ClaimRequest, Settlement, Source, exchange
from django_reliable_jobs.store.heartbeat import Held, heartbeat
from django_reliable_jobs.store.key_holders import expire_holders
from django_reliable_jobs.store.prune import prune
from django_reliable_jobs.store.reap import expire, reap, release_unheld
from django_reliable_jobs.store.settle_atomic import settle
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.backoff import Backoff
from django_reliable_jobs.values.lease import Lease
from django_reliable_jobs.values.outcome import ErrorRecord
from tests.support.factories import JobFactory, ago, lease_of
from tests.support.probes.jobs import noop
from tests.support.sessions import PATIENCE, Session, fetch, impatient, together

JOBS = 24
ROUNDS = 60
ERROR = ErrorRecord("E", "m", "t")
OUTCOMES = [
    outcome.DONE, outcome.RELEASED, outcome.snoozed(0), outcome.failed(0, ERROR, last_attempt=False), outcome.dead("d", ERROR),
]  # fmt: skip


WORKERS_VERBS: dict[str, tuple[dict[str, Any], Callable[[list[Job]], Any]]] = {
    "settle": (
        {"running": True},
        lambda jobs: (
            exchange(
                "default",
                jobs[0].locked_by,
                30,
                [Settlement(lease_of(job), outcome.DONE) for job in jobs],
                ClaimRequest(),
            ).settled
        ),
    ),
    "claim": (
        {},
        lambda jobs: exchange("default", uuid4(), 30, [], ClaimRequest(9, pairs=[Source("default", 0)])).leases,
    ),
    "heartbeat": ({"running": True}, lambda jobs: heartbeat("default", 30, [Held(lease_of(job).key) for job in jobs])),
    "reap": ({"running": True, "locked_until": ago(1)}, lambda jobs: reap("default", Backoff(), 9)),
    "reap the dead": (
        {"running": True},
        lambda jobs: reap("default", Backoff(), 9, [job.locked_by for job in jobs], reach=0),
    ),
    "release": ({"running": True, "locked_by": UUID(int=7)}, lambda jobs: release_unheld("default", UUID(int=7), [])),
    "expire": ({"expires_at": ago(1)}, lambda jobs: range(expire("default", 9))),
    "prune": ({"done": True}, lambda jobs: range(prune("default", JobStatus.DONE, 1, 9))),
}


@pytest.mark.parametrize(("values", "verb"), WORKERS_VERBS.values(), ids=WORKERS_VERBS)
def test_no_statement_of_a_worker_waits_for_a_row(sessions: Callable[[], Session], values: Any, verb: Any) -> None:
    """One row that an open transaction holds holds up nothing but itself."""
    jobs = JobFactory.create_batch(3, **values)
    somebody, worker = sessions(), sessions()
    somebody.begin()
    somebody.sql("SELECT 1 FROM django_reliable_jobs_job WHERE id = %s FOR UPDATE", [jobs[1].pk])
    assert len(worker.do(verb, jobs)) == 2


OPERATORS_VERBS: dict[str, Callable[[list[int]], Any]] = {
    "cancel": lambda ids: control_store.cancel("default", ids),
    "run now": lambda ids: control_store.run_now("default", ids),
    "set priority": lambda ids: control_store.set_priority("default", ids, 1),
    "expire the holders of keys": lambda ids: expire_holders(
        "default", ["probes.noop"], [f"k{job_id}" for job_id in ids]
    ),
}


@pytest.mark.parametrize("verb", OPERATORS_VERBS.values(), ids=OPERATORS_VERBS)
def test_whoever_waits_locks_in_the_order_of_ids(sessions: Callable[[], Session], verb: Any) -> None:
    """So that two of them wait for each other's end, and not for each other. Many rows, so that any plan would show."""
    ids = [job.pk for job in JobFactory.create_batch(9, expires_at=ago(1))]
    fetch("UPDATE django_reliable_jobs_job SET unique_key = 'k' || id")
    fetch("UPDATE django_reliable_jobs_job SET name = name WHERE id = %s", [ids[0]])  # it now lies behind the others
    somebody, verbs, probe = sessions(), sessions(), sessions()
    somebody.begin()
    somebody.sql("SELECT 1 FROM django_reliable_jobs_job WHERE id = %s FOR UPDATE", [ids[4]])
    verbs.begin()
    answer = verbs.start(verb, [*ids[5:], *ids[:5]])
    verbs.waits_for(answer)
    free = probe.sql("SELECT id FROM django_reliable_jobs_job ORDER BY id FOR UPDATE SKIP LOCKED")
    assert [job_id for (job_id,) in free] == ids[5:]
    somebody.rollback()
    assert len(answer.result(60)) == 9


class Storm:
    """What all of its threads share: the leases that somebody holds, and the signal to begin."""

    def __init__(self, threads: int, seed: int) -> None:
        self.start = threading.Barrier(threads, timeout=PATIENCE)
        self.leases: dict[int, Lease] = {}
        self.random = random.Random(seed)

    def sample(self, most: int) -> list[Lease]:
        """In any order, and some of them lost by now."""
        leases = list(self.leases.values())
        return self.random.sample(leases, min(len(leases), most))

    def run(self, step: Callable[[], Any]) -> int:
        impatient(60_000)
        self.start.wait()
        for _ in range(ROUNDS):
            step()
        return ROUNDS


def test_nothing_deadlocks_and_every_row_stays_in_order() -> None:
    JobFactory.create_batch(JOBS, max_attempts=None)
    seed = random.randrange(2**32)
    worker = uuid4()
    steps: list[Callable[[Storm], Any]] = [
        partial(_work, worker), partial(_work, uuid4()), _beat, _beat, _reap, _cancel, _retry, _operate, _save,
        partial(_atomic, worker),
        lambda storm: release_unheld("default", worker, [lease.token for lease in storm.sample(99)]),
        lambda storm: _keep_house(),
        lambda storm: _enqueue(storm),
    ]  # fmt: skip
    storm = Storm(len(steps), seed)
    try:
        assert sum(together(*(partial(storm.run, partial(step, storm)) for step in steps))) == ROUNDS * len(steps)
    except BaseException as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    assert not set(Job.objects.values_list("status", flat=True)) - {status.value for status in JobStatus}
    broken = Job.objects.filter(attempts__lt=0) | Job.objects.filter(status="RUNNING", locked_until=None)
    assert not broken.exists()


def _work(worker: Any, storm: Storm) -> None:
    offers = [Settlement(lease, storm.random.choice(OUTCOMES), '{"done": 1}') for lease in storm.sample(6)]
    got = exchange("default", worker, 30, offers, ClaimRequest(4, 2, [Source("default", 0), Source("default", 1)], 12))
    for lease in got.leases:
        storm.leases[lease.job_id] = lease


def _beat(storm: Storm) -> None:
    heartbeat("default", storm.random.choice([30, -5]), [Held(lease.key, '{"done": 2}') for lease in storm.sample(20)])


def _reap(storm: Storm) -> None:
    reap("default", Backoff(base=0, factor=1, cap=0), 20)


def _some(most: int) -> list[int]:
    return list(Job.objects.order_by("?").values_list("id", flat=True)[:most])


def _cancel(storm: Storm) -> None:
    jobs = Job.objects.filter(pk__in=_some(16))
    with transaction.atomic():
        control.cancel(jobs)


def _retry(storm: Storm) -> None:
    control.retry(Job.objects.filter(status__in=["DEAD", "CANCELLED"]))


def _operate(storm: Storm) -> None:
    jobs = Job.objects.filter(pk__in=_some(12))
    with transaction.atomic():
        control.set_priority(jobs, storm.random.choice([0, 1]))
    control.run_now(jobs)


def _save(storm: Storm) -> None:
    for lease in storm.sample(2):
        try:
            with transaction.atomic():
                checkpoint.load("default", lease.key)
                checkpoint.save("default", lease.key, "1")
                fetch("SET CONSTRAINTS ALL IMMEDIATE")
        except StaleToken:
            pass


def _atomic(worker: Any, storm: Storm) -> None:
    for lease in storm.sample(2):
        with transaction.atomic():
            fetch("SET CONSTRAINTS ALL IMMEDIATE")
            if not settle("default", worker, Settlement(lease, outcome.DONE)):
                transaction.set_rollback(True)


def _keep_house() -> None:
    expire("default", 10)
    prune("default", JobStatus.DEAD, 10_000, 10)


def _enqueue(storm: Storm) -> None:
    key = f"k{storm.random.randrange(4)}"
    mode = storm.random.choice(["keep", "replace"])
    noop.using(unique_key=key, if_exists=mode, unique_until=storm.random.choice(["start", "finish"])).enqueue(1)
