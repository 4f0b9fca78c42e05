"""A worker starts on tables whose tokens the sequence has not given (P13)."""

from __future__ import annotations

from django_reliable_jobs.models import Job, TokenMark
from django_reliable_jobs.store.tokens import MARGIN, fencing_tokens, raise_mark
from tests.support.factories import JobFactory
from tests.support.fleet import Fleet
from tests.support.look import all_done, sql
from tests.support.probes import jobs as probes


def test_a_worker_raises_it_before_it_claims(fleet: Fleet) -> None:
    last = fencing_tokens("default", 100)[-1]
    JobFactory(done=True, fencing_token=last)
    raise_mark("default")
    sql("SELECT setval('django_reliable_jobs_fencing_token', 1)")
    jobs = probes.noop.enqueue_many([(n,) for n in range(5)])
    try:
        worker = fleet.start("--slots", "2")
        all_done(jobs)
        assert min(Job.objects.filter(pk__in=jobs).values_list("fencing_token", flat=True)) > last + MARGIN / 2
        assert "is behind the tokens in the tables" in worker.text
        assert worker.stop() == 0
        again = fleet.burst()
        assert "is behind" not in again.text
        assert TokenMark.objects.get().token > last + MARGIN / 2
    finally:
        sql("SELECT setval('django_reliable_jobs_fencing_token', %s)", last + 10_000)
