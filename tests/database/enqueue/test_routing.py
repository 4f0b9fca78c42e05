"""D08: the jobs may lie on another alias than `default`, with a router or without; a read replica is never asked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.db.models import Model
from psycopg import sql

from django_reliable_jobs import control
from django_reliable_jobs.models import Job, JobAttempt, JobCheckpoint, JobStatus, QueueState
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.running.context import JobContext
from django_reliable_jobs.store.exchange import ClaimRequest, Settlement, Source, exchange
from django_reliable_jobs.store.heartbeat import Held, heartbeat
from django_reliable_jobs.store.prune import prune
from django_reliable_jobs.store.queues_with_work import discover
from django_reliable_jobs.store.reap import expire, reap, release_unheld
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.backoff import Backoff
from django_reliable_jobs.values.lease import Lease
from django_reliable_jobs.values.outcome import ErrorRecord
from testproject.postgres.urls import url_of
from tests.support.probes.jobs import echo, noop
from tests.support.probes.models import Mark
from tests.support.sessions import fetch
from tests.support.store import portable

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])
WORKER = uuid4()


class Router:
    """As a project would write it: the app's tables on `other`, reads on a replica."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return "replica" if model._meta.app_label == "django_reliable_jobs" else None

    def db_for_write(self, model: type[Model], **hints: Any) -> str | None:
        return "other" if model._meta.app_label == "django_reliable_jobs" else None

    def allow_relation(self, one: Model, two: Model, **hints: Any) -> bool | None:
        return True


@pytest.fixture(scope="module")
def other_database(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """A second database, as the aliases `other` and, where nothing may be asked, `replica`."""
    default = connection.settings_dict
    name = f"{default['NAME']}_other"
    login = {"dbname": default["NAME"], "host": default["HOST"], "port": default["PORT"] or None}
    login |= {"user": default["USER"] or None, "password": default["PASSWORD"] or None}
    with psycopg.connect(**login, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    connections.settings["other"] = deepcopy(default) | {"NAME": name}
    connections.settings["replica"] = deepcopy(default) | {"NAME": f"{name} is never asked"}
    with django_db_blocker.unblock():
        call_command("migrate", database="other", verbosity=0)
        yield
        for alias in ("other", "replica"):
            connections[alias].close()
            del connections[alias]
            del connections.settings[alias]
    with psycopg.connect(**login, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(params=["by the setting", "by a router"])
def other(request: pytest.FixtureRequest, other_database: None, settings: Any) -> Iterator[str]:
    settings.RELIABLE_JOBS = {"DATABASE": "other"}
    if request.param == "by a router":
        settings.DATABASE_ROUTERS = [Router()]
    with transaction.atomic(using="other"):
        fetch("TRUNCATE django_reliable_jobs_job, django_reliable_jobs_queuestate CASCADE", alias="other")
    fetch("ALTER TABLE django_reliable_jobs_job RENAME TO nothing_here")  # any use of `default` is an error
    yield "other"
    fetch("ALTER TABLE nothing_here RENAME TO django_reliable_jobs_job")


def claim(alias: str) -> list[Lease]:
    return exchange(alias, WORKER, 30, [], ClaimRequest(9, pairs=[Source("default", 0)])).leases


def test_every_verb_of_enqueue_works(other: str) -> None:
    made = noop.enqueue()
    assert made._state.db == other
    keyed = noop.using(unique_key="k", idempotency_key="i")
    assert keyed.enqueue().created
    assert not keyed.enqueue().created
    assert noop.using(unique_key="k", if_exists="replace").enqueue(3).args == [3]
    assert len(set(keyed.enqueue_many([(1,), (2,)]))) == 1
    bulk = noop.using(unique_key=lambda number: f"b{number}", if_exists="raise")
    assert len(bulk.enqueue_many([(1,), (2,)])) == 2
    made.refresh_from_db(using=other)  # as with every model, a router would send it to the replica
    assert Job.objects.count() == 4
    assert fetch("SELECT count(*) FROM django_reliable_jobs_job", alias=other) == [(4,)]


def test_every_verb_of_a_worker_works(other: str) -> None:
    jobs = [echo.enqueue(number) for number in range(6)]
    leases = claim(other)
    assert [lease.job_id for lease in leases] == [job.pk for job in jobs]
    assert [(work.queue, work.priority) for work in discover(other)] == []
    assert len(heartbeat(other, 30, [Held(lease.key) for lease in leases])) == 6
    failed = outcome.failed(0, ErrorRecord("E", "m", "t"), last_attempt=False)
    assert exchange(other, WORKER, 30, [Settlement(leases[0], failed)], ClaimRequest()).settled == {leases[0].key}
    assert portable.exchange(other, WORKER, 30, [Settlement(leases[1], outcome.DONE)], ClaimRequest()).settled == {
        leases[1].key
    }
    context = JobContext(Attempt(leases[2]), other)
    with transaction.atomic(using=other):
        assert context.state is None
        context.checkpoint(7)
    assert JobCheckpoint.objects.get().value == 7
    fetch(
        "UPDATE django_reliable_jobs_job SET locked_until = now() - interval '1s' WHERE status = 'RUNNING'", alias=other
    )
    assert len(reap(other, Backoff(), 10)) == 4
    assert expire(other, 10) == 0
    assert release_unheld(other, uuid4(), []) == []
    assert prune(other, JobStatus.DONE, 0, 10) == 1
    assert len(portable.exchange(other, WORKER, 30, [], ClaimRequest(2, pairs=[Source("default", 0)])).leases) == 2


def test_every_verb_of_control_works(other: str) -> None:
    job = noop.enqueue()
    stored = Job.objects.get()
    for jobs in (job, job.pk, stored, Job.objects.all(), Job.objects.order_by("id")[:1]):
        assert control.run_now(jobs).changed == [job.pk]
        assert control.set_priority(jobs, 3).changed == [job.pk]
        assert control.cancel(jobs).changed == [job.pk]
        assert control.retry(jobs).changed == [job.pk]
    assert control.pause_queue("mail")
    assert QueueState.objects.get().queue == "mail"
    assert control.resume_queue("mail")
    dead = noop.using(unique_key="k").enqueue()
    Job.objects.filter(pk=dead.pk).update(status="DEAD")
    holder = noop.using(unique_key="k").enqueue()
    assert control.retry(dead).skipped == {dead.pk: f"job {holder.pk} holds its unique key"}


def test_a_transaction_of_another_alias_is_not_joined(other: str) -> None:
    """Documented: only a transaction on the jobs' own alias takes them with it."""
    with transaction.atomic():
        Mark.objects.create(label="order")
        kept = noop.enqueue()
        transaction.set_rollback(True)
    assert [lease.job_id for lease in claim(other)] == [kept.pk]
    with transaction.atomic(using=other):
        noop.enqueue()
        transaction.set_rollback(True, using=other)
    assert claim(other) == []


def test_reads_never_go_to_a_replica(other: str, settings: Any) -> None:
    job = noop.enqueue()
    [lease] = claim(other)
    failed = outcome.dead("d", ErrorRecord("E", "m", "t"))
    assert exchange(other, WORKER, 30, [Settlement(lease, failed)], ClaimRequest()).settled
    assert Job.objects.get(pk=job.pk).attempt_set.get().error_kind == "E"
    assert JobAttempt.objects.filter(job=job).count() == 1


def test_one_enqueue_may_name_a_database(other_database: None) -> None:
    fetch("TRUNCATE django_reliable_jobs_job CASCADE", alias="other")
    here = noop.enqueue()
    there = noop.using(database="other", unique_key="k").enqueue()
    assert noop.using(database="other", unique_key="k").enqueue().pk == there.pk
    assert (here._state.db, there._state.db) == ("default", "other")
    assert Job.objects.get() == here
    assert Job.objects.using("other").get() == there
    [lease] = claim("other")
    failed = outcome.dead("d", ErrorRecord("E", "m", "t"))
    assert exchange("other", WORKER, 30, [Settlement(lease, failed)], ClaimRequest()).settled
    assert there.attempt_set.count() == 1, "what belongs to a job is where the job is"
    assert control.retry(there).changed == [there.pk]
    assert control.cancel(there.pk, using="other").changed == [there.pk]


def test_a_worker_serves_the_other_database(other: str, subprocess_env: dict[str, str]) -> None:
    jobs = [echo.enqueue(7), noop.enqueue()]
    env = subprocess_env | {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "TEST_OTHER_DATABASE": url_of(connections["other"].settings_dict),
        "RELIABLE_JOBS_JSON": '{"DATABASE": "other"}',
    }
    command = [sys.executable, "-m", "django", "jobworker", "--burst", "--slots", "2"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [Job.objects.get(pk=job.pk).status for job in jobs] == ["DONE", "DONE"], done.stderr
    assert Job.objects.get(pk=jobs[0].pk).value == 7
