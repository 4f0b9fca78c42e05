"""Which names no living worker knows, and what becomes of their jobs (cases P06, N07; protocol 28)."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import pytest
from django.utils import timezone

from django_reliable_jobs.definitions import registry
from django_reliable_jobs.definitions.registry import NamesKnown
from django_reliable_jobs.models import Job, JobAttempt, KnownNames, UnknownName, Worker
from django_reliable_jobs.store import names
from django_reliable_jobs.store.exchange import BEGINNING, ClaimRequest, Exchanged, Source
from django_reliable_jobs.store.queues_with_work import Work
from django_reliable_jobs.worker.leases import unknown_names
from django_reliable_jobs.worker.leases.unknown_names import DEAR, MOST, PAUSE, NameJudge, UnknownNames
from tests.support.factories import JobFactory, WorkerFactory, ago
from tests.support.look import sql
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db

AFTER, ALIVE = 3600.0, 120.0  # as by default


def worker(*known: str, digest: str | None = None, **values: Any) -> Worker:
    if digest is None:
        digest = "+".join(known)
        names.announce("default", NamesKnown(digest, known))
    made: Worker = WorkerFactory(names_digest=digest, last_seen=timezone.now(), **values)
    return made


def unknown(*which: str, met: float = AFTER + 1) -> None:
    UnknownName.objects.bulk_create([UnknownName(name=name, met_at=ago(met)) for name in which])


def judged() -> list[str]:
    return sorted(names.judged("default", AFTER, ALIVE))


def judge(met: tuple[str, ...] = (), *, may_judge: bool = True) -> NameJudge:
    """A look of a worker that has met these names."""
    seen = UnknownNames()
    for name in met:
        seen.met(name)
    made = NameJudge("default", seen, threading.Event())
    made.look(nullcontext, lambda: None, may_judge=may_judge)
    return made


# -- who knows what


def test_names_are_written_once_for_all_workers_that_know_the_same() -> None:
    known = NamesKnown("d", ("a", "b"))
    for _ in range(3):
        names.announce("default", known)
    assert [(row.digest, row.names) for row in KnownNames.objects.all()] == [("d", ["a", "b"])]
    KnownNames.objects.update(seen_at=ago(400))
    names.announce("default", known)
    assert KnownNames.objects.get().seen_at > ago(60), "it is in use"


def test_a_digest_is_kept_while_a_worker_has_it_and_for_an_hour() -> None:
    worker("a")
    worker("b").delete()
    names.announce("default", NamesKnown("young", ("c",)))
    KnownNames.objects.exclude(digest="young").update(seen_at=ago(4000))
    names.prune("default")
    assert set(KnownNames.objects.values_list("digest", flat=True)) == {"a", "young"}


def test_a_name_that_no_table_can_hold_does_not_keep_the_others_from_being_said() -> None:
    names.announce("default", NamesKnown("d", ("a", "\udfff", "nul\x00")))
    assert KnownNames.objects.get().names == ["a"]


def test_the_digest_is_that_of_the_names_and_follows_a_late_import(monkeypatch: pytest.MonkeyPatch) -> None:
    before = registry.known()
    assert before is registry.known()
    with monkeypatch.context() as patch:
        patch.setitem(registry._by_name, "tests.came_late", registry.find("probes.noop"))
        assert registry.known().digest != before.digest
        assert "tests.came_late" in registry.known().names
    assert registry.known() == before


# -- met, forgotten, judged


def test_a_name_that_nobody_knows_is_judged_after_the_period() -> None:
    worker("a")
    names.meet("default", ["b"], ALIVE)
    assert judged() == []
    UnknownName.objects.update(met_at=ago(AFTER + 1))
    names.meet("default", ["b"], ALIVE)
    assert judged() == ["b"], "it was met first when it was met first"


def test_a_name_that_a_living_worker_knows_is_not_met_and_is_forgotten() -> None:
    """However busy that worker is."""
    worker("a", busy=8, slots=8)
    names.meet("default", ["a"], ALIVE)
    assert not UnknownName.objects.exists()
    unknown("a", "b")
    assert judged() == ["b"]
    names.forget("default", ALIVE)
    assert [row.name for row in UnknownName.objects.all()] == ["b"]


@pytest.mark.parametrize(("unseen", "expected"), [(ALIVE + 60, []), (AFTER + 60, ["a"])])
def test_the_period_counts_from_the_last_sign_of_whoever_knew_it(unseen: float, expected: list[str]) -> None:
    knower = worker("a")
    Worker.objects.filter(pk=knower.pk).update(last_seen=ago(unseen))
    unknown("a")
    assert judged() == expected


@pytest.mark.parametrize("digest", ["", "not written down yet"])
def test_nothing_is_judged_while_a_worker_lives_that_does_not_say_what_it_knows(digest: str) -> None:
    """An older version of the package, or one that has just started."""
    silent = worker(digest=digest)
    unknown("a")
    assert judged() == []
    Worker.objects.filter(pk=silent.pk).update(last_seen=ago(ALIVE + 60))
    assert judged() == ["a"]


# -- dead


def test_all_waiting_jobs_of_a_judged_name_become_dead_and_say_why() -> None:
    unknown("gone")
    gone = [
        JobFactory(name="gone"), JobFactory(name="gone", queue="other", priority=-100), JobFactory(name="gone", failed=True),
        JobFactory(name="gone", run_at=ago(-9999), priority=100), JobFactory(name="gone", attempts=2, fencing_token=7),
    ]  # fmt: skip
    others = [JobFactory(), JobFactory(name="gone", running=True), JobFactory(name="gone", done=True)]
    before = list(Job.objects.filter(pk__in=[job.pk for job in others]).order_by("pk").values())
    judge()
    for job in gone:
        now = Job.objects.get(pk=job.pk)
        assert (now.status, now.reason, now.attempts) == ("DEAD", "unknown job", job.attempts)
        assert now.finished_at is not None
        assert now.fencing_token > job.fencing_token
        record = JobAttempt.objects.get(job=job, fencing_token=now.fencing_token)
        assert (record.status, record.error_kind) == ("DEAD", "UnknownJob")
        assert "no job is named 'gone'" in record.error_message
    assert list(Job.objects.filter(pk__in=[job.pk for job in others]).order_by("pk").values()) == before


def test_rows_with_values_from_outside_the_contract_are_no_obstacle() -> None:
    """A time that no host can represent."""
    unknown("gone")
    # As they stand where the constraint has not come yet.
    sql("ALTER TABLE django_reliable_jobs_job DROP CONSTRAINT IF EXISTS reliable_jobs_calendar")
    jobs = JobFactory.create_batch(5, name="gone")
    sql("UPDATE django_reliable_jobs_job SET run_at = 'infinity' WHERE id = %s", jobs[0].pk)
    sql("UPDATE django_reliable_jobs_job SET run_at = '-infinity' WHERE id = %s", jobs[1].pk)
    sql("UPDATE django_reliable_jobs_job SET run_at = '20000-01-01' WHERE id = %s", jobs[2].pk)
    sql("UPDATE django_reliable_jobs_job SET queue = '' WHERE id = %s", jobs[3].pk)
    judge()
    assert sql("SELECT DISTINCT status FROM django_reliable_jobs_job") == [("DEAD",)]


@pytest.mark.parametrize("walk", [1, 2, 3, 50])
def test_a_walk_in_pieces_misses_nothing(monkeypatch: pytest.MonkeyPatch, walk: int) -> None:
    monkeypatch.setattr(unknown_names, "WALK", walk)
    monkeypatch.setattr(unknown_names, "BATCH", 2)
    unknown("gone")
    same = ago(50)
    for queue in ("a", "b", "", "z"):
        for priority in (-100, 0, 0, 100):
            JobFactory(name="gone", queue=queue, priority=priority, run_at=same)
            JobFactory(queue=queue, priority=priority, run_at=same)
    judge()
    assert not Job.objects.filter(name="gone").exclude(status="DEAD").exists()
    assert not Job.objects.exclude(name="gone").exclude(status="QUEUED").exists()


def test_a_name_is_done_with_when_no_job_of_it_is_left_and_then_counts_anew() -> None:
    unknown("gone")
    JobFactory(name="gone")
    judge()
    assert UnknownName.objects.exists(), "rows that somebody held would be left"
    judge()
    assert not UnknownName.objects.exists()
    job = JobFactory(name="gone")
    judge(("gone",))
    assert Job.objects.get(pk=job.pk).status == "QUEUED"
    assert UnknownName.objects.get().met_at > ago(60)


def test_without_a_lease_of_contact_nothing_is_judged() -> None:
    """After an outage nobody has been seen for long."""
    unknown("gone")
    job = JobFactory(name="gone")
    judge(may_judge=False)
    assert Job.objects.get(pk=job.pk).status == "QUEUED"


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_knows_the_name_and_comes_between_two_batches_saves_the_rest() -> None:
    unknown("gone")
    ids = [job.pk for job in JobFactory.create_batch(4, name="gone")]
    assert names.dead("default", ids[:2], AFTER, ALIVE) == ["gone"] * 2
    worker("gone")
    assert names.dead("default", ids[2:], AFTER, ALIVE) == []
    assert Job.objects.filter(status="QUEUED").count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_row_that_somebody_holds_is_left_and_found_by_the_next_look() -> None:
    unknown("gone")
    held, other = JobFactory.create_batch(2, name="gone")
    with Session() as admin:
        admin.begin()
        admin.sql("SELECT 1 FROM django_reliable_jobs_job WHERE id = %s FOR UPDATE", [held.pk])
        judge()
        assert [Job.objects.get(pk=job.pk).status for job in (held, other)] == ["QUEUED", "DEAD"]
    judge()
    judge()
    assert Job.objects.get(pk=held.pk).status == "DEAD"
    assert not UnknownName.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_workers_do_not_judge_one_name_at_once() -> None:
    unknown("gone")
    ids = [job.pk for job in JobFactory.create_batch(2, name="gone")]
    with Session() as rival:
        rival.begin()
        rival.sql("SELECT 1 FROM django_reliable_jobs_unknownname FOR NO KEY UPDATE")
        assert names.dead("default", ids, AFTER, ALIVE) == []
    assert names.dead("default", ids, AFTER, ALIVE) == ["gone"] * 2


# -- what the engine passes over


def test_a_name_is_passed_over_until_it_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, now = UnknownNames(), [1000.0]
    monkeypatch.setattr(unknown_names.time, "monotonic", lambda: now[0])
    assert seen.names() == []
    assert seen.met("a") is None
    assert (seen.names(), seen.met_lately()) == (["a"], ["a"])
    now[0] += unknown_names.PASS_OVER + 1
    assert (seen.names(), seen.met_lately()) == ([], [])


def test_a_name_that_an_import_has_brought_is_not_passed_over() -> None:
    seen = UnknownNames()
    seen.met("probes.noop")
    assert (seen.names(), seen.met_lately()) == ([], [])


def test_with_too_many_names_the_jobs_of_further_ones_wait() -> None:
    """They must not keep the worker busy with claiming and handing back what stands at the head."""
    seen = UnknownNames()
    assert {seen.met(f"x{number}") for number in range(MOST)} == {None}
    assert seen.met("one more") == PAUSE
    assert seen.met("x0") is None


def looked(seen: UnknownNames, since: Any) -> Any:
    [work] = seen.skip([Work("default", 0, (since - timezone.now()).total_seconds(), since)])
    return work.since


@pytest.mark.parametrize(("seconds", "is_dear"), [(DEAR / 2, False), (DEAR * 2, True)])
def test_a_dear_walk_over_others_jobs_is_not_repeated_at_once(
    monkeypatch: pytest.MonkeyPatch, seconds: float, is_dear: bool
) -> None:
    seen, now = UnknownNames(), [1000.0]
    monkeypatch.setattr(unknown_names.time, "monotonic", lambda: now[0])
    seen.met("others")
    head = ago(500)
    assert looked(seen, head) == head
    wish = ClaimRequest(1, pairs=[Source("default", 0, BEGINNING)], unknown=["others"])
    places = seen.claimed(wish, Exchanged(), seconds)
    assert bool(places) == is_dear
    if is_dear:
        [(queue, priority, since)] = places
        assert (queue, priority) == ("default", 0)
        assert ago(60) < since < timezone.now()
        assert looked(seen, head) == since
        now[0] += unknown_names.SHARE * seconds + 0.01
    assert looked(seen, head) == head
