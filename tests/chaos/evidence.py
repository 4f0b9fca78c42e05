"""What a run leaves for the checker: history, tables, logs, timeline. Gathered by plain SQL and plain reading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import class_row, namedtuple_row

from tests.chaos import history
from tests.chaos.fleet import WORKER
from tests.chaos.history import Event
from tests.chaos.timeline import Timeline

REFUSED = re.compile(r"\[(\d+)\] .*#(\d+): this worker lost its lease \(token (\d+)\), so its outcome (\w+) is dropped")
COUNTED = re.compile(r"\[(\d+)\] .*: worker [0-9a-f-]{36} ends: (?:.*\b(\d+) refused)?")


@dataclass(frozen=True)
class JobRow:
    """A row of the jobs table. The tag is the first argument; times are seconds since 1970 by the database's clock."""

    id: int
    name: str
    tag: str | None
    status: str
    reason: str
    attempts: int
    max_attempts: int | None
    losses: int
    fencing_token: int
    owner: str | None
    locked_until: float | None
    started_at: float | None
    finished_at: float | None
    result: Any


@dataclass(frozen=True)
class AttemptRow:
    job: int
    token: int
    attempt: int
    status: str
    reason: str
    worker: str | None
    started_at: float | None
    finished_at: float


@dataclass(frozen=True)
class EffectRow:
    tag: str
    step: int
    job: int
    token: int


class Refusal(NamedTuple):
    """A worker said that it dropped an outcome."""

    pid: int
    job: int
    token: int
    outcome: str


class Sample(NamedTuple):
    """A RUNNING row as seen while the fleet was at work. `overdue`: seconds since its lease has run out."""

    mono: float
    job: int
    token: int
    owner: str
    owner_alive: bool
    overdue: float


@dataclass
class Evidence:
    """`samples` were taken when no RUNNING row may be without a live owner any more."""

    lease: float
    history: list[Event] = field(default_factory=list)
    jobs: list[JobRow] = field(default_factory=list)
    attempts: list[AttemptRow] = field(default_factory=list)
    effects: list[EffectRow] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    #: pid -> how many refusals it counted; of workers that stopped in order.
    counted: dict[int, int] = field(default_factory=dict)
    #: Worker id -> pid.
    workers: dict[str, int] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    timeline: Timeline = field(default_factory=Timeline)
    #: Nothing gave an attempt back (no orderly release, no outage): then starts alone must not exceed `max_attempts`.
    crashes_only: bool = False


#: Rows that no producer has enqueued: those of the schedule, and what a fault wrote past the package.
FOREIGN = "name = 'workload.scheduled' OR coalesce(idempotency_key, '') LIKE 'poison %'"
JOBS = f"""
SELECT id, name, args->>0 AS tag, status, reason, attempts, max_attempts, losses, fencing_token,
       locked_by::text AS owner, extract(epoch FROM locked_until)::float8 AS locked_until,
       extract(epoch FROM started_at)::float8 AS started_at,
       extract(epoch FROM finished_at)::float8 AS finished_at, result
  FROM django_reliable_jobs_job WHERE NOT ({FOREIGN}) ORDER BY id
"""
ATTEMPTS = f"""
SELECT job_id AS job, fencing_token AS token, attempt, status, reason, worker::text,
       extract(epoch FROM started_at)::float8 AS started_at, extract(epoch FROM finished_at)::float8 AS finished_at
  FROM django_reliable_jobs_jobattempt
 WHERE job_id NOT IN (SELECT id FROM django_reliable_jobs_job WHERE {FOREIGN}) ORDER BY id
"""
EFFECTS = "SELECT tag, step, job_id AS job, token FROM workload_effect ORDER BY id"
RUNNING = """
SELECT id AS job, fencing_token AS token, locked_by::text AS owner,
       extract(epoch FROM clock_timestamp() - locked_until)::float8 AS overdue
  FROM django_reliable_jobs_job WHERE status = 'RUNNING'
"""


def read_tables(url: str, evidence: Evidence) -> None:
    with psycopg.connect(url) as connection:
        evidence.jobs = connection.cursor(row_factory=class_row(JobRow)).execute(JOBS).fetchall()
        evidence.attempts = connection.cursor(row_factory=class_row(AttemptRow)).execute(ATTEMPTS).fetchall()
        evidence.effects = connection.cursor(row_factory=class_row(EffectRow)).execute(EFFECTS).fetchall()


def read_history(path: Path, evidence: Evidence) -> None:
    evidence.history = list(history.read(path))


def log_lines(directory: Path) -> Iterator[str]:
    for log in sorted(directory.glob("pod-*.log")):
        with log.open(errors="replace") as lines:
            yield from (f"{log.name}: {line.rstrip()}" for line in lines)


def read_logs(directory: Path, evidence: Evidence) -> None:
    evidence.logs = list(log_lines(directory))
    for line in evidence.logs:
        if found := REFUSED.search(line):
            pid, job, token, outcome = found.groups()
            evidence.refusals.append(Refusal(int(pid), int(job), int(token), outcome))
        elif found := WORKER.search(line):
            evidence.workers[found[2]] = int(found[1])
        elif found := COUNTED.search(line):
            evidence.counted[int(found[1])] = int(found[2] or 0)


def running_rows(url: str) -> list[Any]:
    with psycopg.connect(url, row_factory=namedtuple_row) as connection:
        return connection.execute(RUNNING).fetchall()
