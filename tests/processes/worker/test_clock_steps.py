"""The database's clock is set forward while jobs run (case P21)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django_reliable_jobs.models import Job
from tests.support.fleet import Fleet, wait_until
from tests.support.look import all_done, fresh, marked
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark
from tests.support.schedules.clock import ENVIRONMENT, DatabaseClock

LEASE = 4
NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


def test_a_step_by_more_than_a_lease_takes_nothing_from_the_living(fleet: Fleet) -> None:
    clock = DatabaseClock(NOW, factor=1)
    settings = {"LEASE": LEASE, "HEARTBEAT": 1.3, "POLL": 0.1, "LISTEN": False}
    workers = [fleet.start("--slots", "4", settings=settings, env=ENVIRONMENT) for _ in range(2)]
    running = [probes.meet.using(run_at=NOW - timedelta(1), timeout=None).enqueue("stepped") for _ in range(8)]
    marked("stepped begins", 8)
    for step in range(1, 4):
        # All of them have been in touch for longer than a lease, so that they may reap whatever has run out.
        first = fresh(running[0]).locked_until
        assert first is not None
        wait_until(lambda first=first: fresh(running[0]).locked_until > first + timedelta(seconds=1.5 * LEASE))
        clock.set(NOW + step * timedelta(hours=1), factor=1)
    for worker in workers:
        worker.logged("the database's clock has gone")
    Mark.objects.create(label="stepped go")
    all_done(running)
    assert {(job.attempts, job.losses) for job in Job.objects.all()} == {(1, 0)}
    assert [worker.stop() for worker in workers] == [0, 0]
