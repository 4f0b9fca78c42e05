"""One idle worker and schedules that are due each second: how late is the fire?

The first fire time is some seconds after the schedules were made: until a worker has looked, which it does each POLL, it
does not know of them, and that is no question of how it fires.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.stage import RunFailed, Stage
from benchmarks.usage import Usage
from benchmarks.workloads import Record, Scale, repetitions
from benchmarks.workloads.latency import at

SCHEDULES = 5

MAKE = """
INSERT INTO django_reliable_jobs_cronschedule (name, job_name, expression, timezone, args, kwargs, source, misfire,
    misfire_grace, catch_up_window, catch_up_limit, overlap, jitter, paused, broken, version, fired_through, next_fire_at,
    resumed_at)
SELECT 'every second ' || n, 'benchmarks.noop', '@every 1', 'UTC', '[1]', '{}', '', 'skip', 60, 86400, 100, 'allow', 0,
       false, '', 1, date_trunc('second', now()) + interval '2 seconds', date_trunc('second', now()) + interval '3 seconds', now()
  FROM generate_series(1, %s) AS n"""
LATENESS = "SELECT extract(epoch FROM fired_at - scheduled_for)::float8 * 1000 FROM django_reliable_jobs_cronrun"


def lateness(stage: Stage, scale: Scale) -> Iterator[Record]:
    """Milliseconds from the fire time to the fire, by the database's clock."""
    wanted = scale.trickled

    def measure(_: int) -> Record:
        with stage.fresh(), stage.connect() as connection:
            stage.start_worker()
            stage.child("fill", 1, 0, "noop")
            stage.wait_for_first_mark()
            time.sleep(scale.calm)
            begin = Usage(stage)
            connection.execute(MAKE, [SCHEDULES])
            complete = stage.wait_for_marks(wanted + 1, wanted / SCHEDULES + 30.0)
            other_cpus = Usage(stage).others(begin)
            late = sorted(float(row[0]) for row in connection.execute(LATENESS))
        if not late:
            raise RunFailed(f"{stage.variant.label}: nothing was fired")
        return {
            "jobs": len(late), "complete": complete, "p50": at(late, 0.5), "p95": at(late, 0.95), "p99": at(late, 0.99),
            "worst": late[-1], "other_cpus": other_cpus,
        }  # fmt: skip

    yield from repetitions(scale, measure)
