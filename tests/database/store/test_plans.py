"""D13, D14: on a deep table the worker's statements read what they take, and not what is finished, future or others'."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from pytest_django import DjangoDbBlocker

from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.store import statements
from django_reliable_jobs.store.exchange import ClaimRequest, Settlement, Source, exchange, reread
from django_reliable_jobs.store.heartbeat import Held, heartbeat
from django_reliable_jobs.store.insert import insert
from django_reliable_jobs.store.key_holders import expire_holders, jobs_of
from django_reliable_jobs.store.new_job import Call, NewJob
from django_reliable_jobs.store.prune import prune
from django_reliable_jobs.store.queues_with_work import discover
from django_reliable_jobs.store.reap import expire, reap, release_unheld
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.backoff import Backoff
from django_reliable_jobs.values.states import UNFINISHED
from django_reliable_jobs.worker.leases.claim_plan import ClaimPlan
from django_reliable_jobs.worker.options import QueueSelection
from tests.support.factories import lease_of
from tests.support.sessions import fetch

pytestmark = [pytest.mark.slow, pytest.mark.django_db, pytest.mark.usefixtures("deep_table")]

WORKER = UUID(int=1)
DONE, FUTURE, BACKLOG, READY, RUNNING, LATE = 200_000, 100_000, 30_000, 4_000, 2_000, 5_000

ROWS = """
INSERT INTO django_reliable_jobs_job (name, queue, args, kwargs, status, reason, priority, run_at, expires_at, attempts,
    max_attempts, losses, fencing_token, unique_key, unique_until_start, locked_by, locked_until, created_at, started_at,
    finished_at)
SELECT 'probes.noop', queue, '[]', '{}', status, '', priority, now() + run_at, now() + expires_at, 0, 5, 0, n,
       concat_ws('-', status, queue, priority, run_at_seconds, n), false,
       CASE WHEN status = 'RUNNING' THEN '%(worker)s'::uuid END,
       CASE WHEN status = 'RUNNING' THEN now() + CASE WHEN n %% 2 = 0 THEN interval '1h' ELSE interval '-1h' END END,
       now(), now(), CASE WHEN status = 'DONE' THEN now() - n * interval '1s' END
  FROM (VALUES ('default', 'DONE', 0, -1000, NULL, %(done)s),
               ('default', 'QUEUED', 5, 100000, NULL, %(future)s),    -- future rows, at a higher priority too
               ('default', 'QUEUED', 0, 100000, NULL, %(future)s),
               ('other', 'QUEUED', 9, -1000, NULL, %(backlog)s),      -- another queue's backlog
               ('default', 'QUEUED', 0, -500, NULL, %(ready)s),
               ('default', 'RUNNING', 0, -500, NULL, %(running)s),
               ('late', 'QUEUED', 0, -500, -100, %(late)s))
       AS kind (queue, status, priority, run_at_seconds, expires_in, count)
 CROSS JOIN LATERAL (SELECT make_interval(secs => run_at_seconds) AS run_at, make_interval(secs => expires_in) AS expires_at) t
 CROSS JOIN LATERAL generate_series(1, count) AS n
"""


@pytest.fixture(scope="module")
def deep_table(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Committed once for all of these tests; each of them is rolled back."""
    with django_db_blocker.unblock():
        counts = {
            "worker": WORKER, "done": DONE, "future": FUTURE, "backlog": BACKLOG, "ready": READY, "running": RUNNING,
            "late": LATE,
        }  # fmt: skip
        fetch(ROWS % counts)
        fetch("VACUUM ANALYZE django_reliable_jobs_job")
        yield
        fetch("TRUNCATE django_reliable_jobs_job CASCADE")


class Seen:
    """What a statement did: the plan's nodes, and the pages that it touched."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.nodes = list(_walk(plan["Plan"]))
        self.pages = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]

    @property
    def scans(self) -> set[str]:
        """How the job table is read: the names of indexes, or `Seq Scan`."""
        return {
            node.get("Index Name", node["Node Type"])
            for node in self.nodes
            if node.get("Index Name", "").startswith(("reliable_jobs", "django_reliable_jobs_job_"))
            or (node["Node Type"] == "Seq Scan" and node["Relation Name"] == "django_reliable_jobs_job")
        }

    def pages_of(self, index: str) -> int:
        """The pages that scans of this index have touched, those of the table among them."""
        nodes = [node for node in self.nodes if node.get("Index Name") == index]
        return sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in nodes)

    @property
    def most_rows(self) -> float:
        """Of all nodes, the most rows that were read or thrown away."""
        return max(
            (node["Actual Rows"] + sum(node.get(f"Rows Removed by {what}", 0) for what in ("Filter", "Index Recheck")))
            * node["Actual Loops"]
            for node in self.nodes
        )


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> dict[str, Seen]:
    """Every statement of the store that a verb runs from now on, explained as it is run for real."""
    seen: dict[str, Seen] = {}
    real = statements.run

    def explaining(alias: str, name: str, params: Any) -> list[tuple[Any, ...]]:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statements.load(name)}", params)
                plan = cursor.fetchone()[0]
            seen[name] = Seen((json.loads(plan) if isinstance(plan, str) else plan)[0])
            transaction.set_rollback(True)
        return real(alias, name, params)

    for module in ("exchange", "queues_with_work"):
        monkeypatch.setattr(f"django_reliable_jobs.store.{module}.run_positional", explaining)
    for module in ("exchange", "heartbeat", "reap", "prune", "insert", "key_holders"):
        monkeypatch.setattr(f"django_reliable_jobs.store.{module}.run", explaining)
    return seen


def running(count: int) -> list[Job]:
    return list(Job.objects.filter(status="RUNNING")[:count])


def test_a_claim_reads_what_it_takes(explained: dict[str, Seen]) -> None:
    pairs = [Source("default", 5), Source("default", 0), Source("late", 0)]
    got = exchange("default", uuid4(), 30, [], ClaimRequest(8, 0, pairs[:2], 24))
    assert len(got.leases) == 8
    seen = explained["exchange"]
    assert seen.scans == {"reliable_jobs_claim", "django_reliable_jobs_job_pkey"}
    assert seen.most_rows <= 24 * 2
    assert seen.pages < 1000


def test_an_idle_workers_claim_reads_what_it_takes(explained: dict[str, Seen]) -> None:
    got = exchange("default", uuid4(), 30, [], ClaimRequest(8, pairs=[Source("default", 0)], light=True))
    assert len(got.leases) == 8
    seen = explained["claim_light"]
    assert seen.scans == {"reliable_jobs_claim", "django_reliable_jobs_job_pkey"}
    assert seen.most_rows <= 8
    assert seen.pages < 400


@pytest.mark.parametrize(("settles", "statement"), [(True, "exchange"), (False, "claim_light")])
def test_a_claim_does_not_walk_what_was_just_claimed(
    explained: dict[str, Seen], settles: bool, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D13: a bulk enqueue of one time, and an open snapshot (here this test's transaction) that keeps dead entries."""
    monkeypatch.setattr("django_reliable_jobs.worker.leases.claim_plan.SMALL", READY)
    claiming = ClaimPlan(QueueSelection(), 1.0)
    claiming.told("default", 0)
    walked = []
    for free in (8, READY - 100, 8):
        wish = claiming.wish(free, 0, {}, settles=settles)
        assert wish is not None
        got = exchange("default", WORKER, 30, [], wish)
        assert len(got.leases) == free
        claiming.claimed(wish, got)
        walked.append(explained[statement].pages_of("reliable_jobs_claim"))
    assert walked[2] <= walked[0] + 10, "a few pages at the border"
    assert walked[1] > READY / 40, "the dead entries lie on many more"


def test_a_settle_of_many_reads_what_it_writes(explained: dict[str, Seen]) -> None:
    jobs = running(200)
    got = exchange("default", WORKER, 30, [Settlement(lease_of(job), outcome.DONE) for job in jobs], ClaimRequest())
    assert len(got.settled) == 200
    seen = explained["exchange"]
    assert "Seq Scan" not in seen.scans
    assert seen.most_rows <= 200 * 200
    assert seen.pages < 200 * 60


def test_a_look_around_takes_one_probe_for_each_pair(explained: dict[str, Seen]) -> None:
    assert len(discover("default")) == 4
    assert explained["discover"].scans == {"reliable_jobs_claim"}
    assert explained["discover"].pages < 100


def test_a_heartbeat_reads_what_it_extends(explained: dict[str, Seen]) -> None:
    keys = [lease_of(job).key for job in running(8)]
    assert len(heartbeat("default", 30, [Held(key) for key in keys])) == 8
    assert explained["heartbeat"].scans == {"django_reliable_jobs_job_pkey"}
    assert explained["heartbeat"].pages < 1000


def test_standings_are_read_by_id(explained: dict[str, Seen]) -> None:
    reread("default", [lease_of(job).key for job in running(8)])
    assert explained["reread"].scans <= {"django_reliable_jobs_job_pkey", "reliable_jobs_attempt_unique"}
    assert explained["reread"].pages < 100


def test_reaping_looks_at_running_rows_only(explained: dict[str, Seen]) -> None:
    assert len(reap("default", Backoff(), 100)) == 100
    seen = explained["reap"]
    assert "reliable_jobs_running" in seen.scans
    assert "Seq Scan" not in seen.scans
    assert seen.most_rows <= RUNNING * 20
    assert seen.pages < 100 * 100


def test_reaping_nothing_costs_nothing(explained: dict[str, Seen]) -> None:
    fetch("UPDATE django_reliable_jobs_job SET locked_until = now() + interval '1h' WHERE status = 'RUNNING'")
    assert reap("default", Backoff(), 100) == []
    assert explained["reap"].pages < 500  # the dead entries of the update above among them


def test_a_dead_worker_is_looked_for_among_running_rows(explained: dict[str, Seen]) -> None:
    assert len(reap("default", Backoff(), 100, [WORKER], reach=0)) == 100
    assert "Seq Scan" not in explained["reap"].scans
    assert release_unheld("default", uuid4(), []) == []
    assert explained["release"].scans <= {"reliable_jobs_running", "django_reliable_jobs_job_pkey"}
    assert explained["release"].most_rows <= RUNNING * 20


def test_expiring_takes_a_batch_and_leaves_the_rest_unread(explained: dict[str, Seen]) -> None:
    assert expire("default", 100) == 100
    seen = explained["expire"]
    assert seen.scans <= {"reliable_jobs_unbegun", "django_reliable_jobs_job_pkey"}
    assert seen.most_rows <= 200
    assert seen.pages < 100 * 60


def test_pruning_takes_a_batch_and_leaves_the_rest_unread(explained: dict[str, Seen]) -> None:
    assert prune("default", JobStatus.DONE, 3600, 100) == 100
    seen = explained["prune"]
    assert seen.scans <= {"reliable_jobs_finished", "django_reliable_jobs_job_pkey", "reliable_jobs_attempt_unique"}
    assert seen.most_rows <= 200
    assert seen.pages < 100 * 30
    assert prune("default", JobStatus.DEAD, 3600, 100) == 0
    assert explained["prune"].pages < 100


def test_keys_are_looked_up_by_their_index(explained: dict[str, Seen]) -> None:
    new = NewJob(
        "probes.noop", "default", 0, None, 0.0, None, None, 5, None, False, "probes.noop", ("probes.noop",)
    )  # fmt: skip
    key = Job.objects.filter(status="QUEUED", priority=5).values_list("unique_key", flat=True)[0]
    insert("default", new, Call("[]", "{}", key), replace=True)
    assert explained["replace"].scans < {
        "django_reliable_jobs_job_pkey",
        "reliable_jobs_unique_scope",
    }
    assert explained["replace"].pages < 100
    held = jobs_of("default", new.names).filter(unique_key=key, status__in=UNFINISHED, cancel_requested_at=None)
    assert "Index Scan using reliable_jobs_unique_scope" in held.explain()
    made = jobs_of("default", new.names).filter(idempotency_key=key)
    assert "Index Scan using reliable_jobs_idempotency_scope" in made.explain()
    expire_holders("default", new.names, [key])
    assert explained["expire_holders"].pages < 100
