"""The arena: a database of its own, producers, a fleet, faults, and the judgement at the end.

`docs/design/chaos.md` shows how a test uses it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg

from testproject.postgres import PROJECT_ROOT, EmbeddedPostgres, database_url
from tests.chaos import evidence as gather
from tests.chaos import history
from tests.chaos.evidence import Evidence, Sample
from tests.chaos.fleet import Fleet, Pod, alive
from tests.chaos.history import ENVIRONMENT, Event
from tests.chaos.invariants import check
from tests.chaos.nemesis import Nemesis, Planned
from tests.chaos.proxy import Proxy
from tests.chaos.report import ChaosFailure, report
from tests.chaos.timeline import Timeline

T = TypeVar("T")

PATIENCE = 60.0
UNFINISHED = "SELECT count(*) FROM django_reliable_jobs_job WHERE status IN ('QUEUED', 'RUNNING', 'FAILED')"


#: A role that has only the rights that a worker needs.
LEAST = "chaos_least"


class Arena:
    """Numbers of pods that are not like the others: `proxied` reach the database through a proxy of their own, `least` with
    a role that owns nothing, `zoneless` are on an old host that knows few time zones. Times are in seconds."""

    def __init__(
        self, server: EmbeddedPostgres, database: str, directory: Path, seed: int, *,
        pods: int = 1, lease: float = 3.0, settings: dict[str, Any] | None = None, options: Sequence[str] = (),
        proxied: Sequence[int] = (), least: Sequence[int] = (), zoneless: Sequence[int] = (), respawn: bool = True,
    ) -> None:  # fmt: skip
        self.server = server
        self.database = database
        self.directory = directory
        self.seed = seed
        self.dice = random.Random(f"arena {seed}")
        self.lease = lease
        self.settings: dict[str, Any] = {
            "LEASE": lease, "HEARTBEAT": lease / 3, "POLL": 0.2, "BACKOFF": {"base": 0.1, "factor": 2, "cap": 1},
        } | (settings or {})  # fmt: skip
        self.url = server.url(database)
        self.timeline = Timeline()
        self.history = directory / "history.jsonl"
        self.samples: list[Sample] = []
        self.proxies: dict[int, Proxy] = {}
        self.crashes_only = False
        self._pods, self._proxied, self._options, self._respawn = pods, proxied, options, respawn
        self.least, self._zoneless = least, zoneless
        self._stack = ExitStack()
        self._producers: list[subprocess.Popen[bytes]] = []
        self._nemesis: Nemesis | None = None

    def __enter__(self) -> Self:
        print(f"\nchaos: seed {self.seed} (CHAOS_SEED={self.seed} makes the same plan), files in {self.directory}")
        with ExitStack() as stack:
            for number in self._proxied:
                self.proxies[number] = stack.enter_context(Proxy(("127.0.0.1", self.server.port)))
            if self.least:
                self.rights(granted=True)
            environments = [self._pod_environment(number) for number in range(self._pods)]
            self.fleet = Fleet(
                self.directory, environments, self.timeline, ["--slots", "8", "--grace", "5", *self._options]
            )
            for pod in self.fleet.pods:
                pod.respawn = self._respawn
            stack.enter_context(self.fleet)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for producer in self._producers:
            producer.kill()
            producer.wait()
        for proxy in self.proxies.values():
            proxy.thaw()
        self._stack.close()
        if error is not None:
            print(report(self.seed, self.timeline, [], self.evidence_if_any(), self.directory))

    def environment(self, proxy: Proxy | None = None) -> dict[str, str]:
        """Of a process that works on this database, through `proxy` if one is given."""
        url = self.url
        if proxy is not None:
            url = database_url(self.database, host="127.0.0.1", port=proxy.port, password=self.server.password)
        return {
            **os.environ,
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
            "RELIABLE_JOBS_JSON": json.dumps(self.settings),
            "PYTHONPATH": str(PROJECT_ROOT),
            ENVIRONMENT: str(self.history),
        }

    def _pod_environment(self, number: int) -> dict[str, str]:
        found = self.environment(self.proxies.get(number))
        if number in self.least:
            found["DATABASE_URL"] = found["DATABASE_URL"].replace("//postgres@", f"//{LEAST}@")
        if number in self._zoneless:
            found |= host_without_zones(self.directory / "no-zones", found["PYTHONPATH"])
        return found

    def rights(self, *, granted: bool) -> None:
        """Give the role LEAST what a worker needs, or take it away."""
        self.through_faults(lambda: self._set_rights(granted))

    def through_faults(self, act: Callable[[], T], patience: float = PATIENCE) -> T:
        """Have it done although other faults are under way."""
        until = time.monotonic() + patience
        while True:
            try:
                return act()
            except (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction):
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def _set_rights(self, granted: bool) -> None:
        with psycopg.connect(self.url, autocommit=True) as admin:
            admin.execute(f"SELECT pg_advisory_lock(1) /* {LEAST} */".encode())  # of several arenas on one server
            if not admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (LEAST,)).fetchone():
                admin.execute(f"CREATE ROLE {LEAST} LOGIN".encode())
            verb, to = ("GRANT", "TO") if granted else ("REVOKE", "FROM")
            admin.execute(f"{verb} USAGE ON SCHEMA public {to} {LEAST}".encode())
            admin.execute(f"{verb} SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public {to} {LEAST}".encode())
            admin.execute(f"{verb} USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public {to} {LEAST}".encode())

    # --- what happens -----------------------------------------------------------------------------

    def produce(self, name: str, mix: str, jobs: int, seconds: float = 0.0) -> subprocess.Popen[bytes]:
        """Start a producer of `jobs` committed jobs, spread over `seconds`."""
        arguments = [name, "--mix", mix, "--jobs", str(jobs), "--seconds", str(seconds), "--seed", str(self.seed)]
        with (self.directory / f"producer-{name}.log").open("wb") as log:
            producer = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.producer", *arguments],
                cwd=PROJECT_ROOT, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._producers.append(producer)
        return producer

    def wait_for_fleet(self) -> None:
        """Until every pod has a worker at work."""

        self.wait("a worker in every pod", lambda: all(pod.workers() for pod in self.fleet.pods))

    def wait_for_producers(self, patience: float = PATIENCE) -> None:
        for producer in self._producers:
            assert producer.wait(patience) == 0, f"a producer failed: see its log in {self.directory}"

    def inject(self, plan: Sequence[Planned]) -> Nemesis:
        """Start a nemesis."""
        self._nemesis = Nemesis(self, plan)
        self._nemesis.start()
        return self._nemesis

    def wait(self, what: str, condition: Callable[[], Any], patience: float = PATIENCE, pause: float = 0.05) -> float:
        """Wait until the condition holds; the seconds that it took."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > patience:
                raise AssertionError(f"waited {patience:g} s in vain for: {what}")
            time.sleep(pause)
        return time.monotonic() - began

    def manage(self, *command: str) -> None:
        """Run one of Django's commands on this database."""
        subprocess.run(
            [sys.executable, "manage.py", *command], cwd=PROJECT_ROOT, env=self.environment(), check=True,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip

    def query(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def unfinished(self) -> int:
        return int(self.query(UNFINISHED)[0][0])

    def running(self) -> int:
        return int(self.query("SELECT count(*) FROM django_reliable_jobs_job WHERE status = 'RUNNING'")[0][0])

    def wait_until_running(self, jobs: int) -> None:
        self.wait(f"{jobs} running jobs", lambda: self.running() >= jobs)

    def events(self, what: str) -> list[Event]:
        return [event for event in history.read(self.history) if event["event"] == what]

    def runs(self, pid: int | None = None) -> dict[tuple[int, int], Event]:
        """(job, token) -> the start of the handlers that have started and not ended (of one process)."""
        found: dict[tuple[int, int], Event] = {}
        for event in history.read(self.history):
            key = (event.get("job", 0), event.get("token", 0))
            if event["event"] == "start" and pid in (None, event["pid"]):
                found[key] = event
            elif event["event"] == "end":
                found.pop(key, None)
        return found

    def wait_for_restarts(self, lost: Iterable[tuple[int, int]], since: float, patience: float = PATIENCE) -> float:
        """Wait until each (job, token) has started under a greater token; seconds from `since` to the last."""

        def newest() -> dict[int, Event]:
            return {event["job"]: event for event in sorted(self.events("start"), key=lambda event: event["token"])}

        lost = list(lost)
        self.wait("the lost jobs to start again", lambda: all(newest()[j]["token"] > t for j, t in lost), patience)
        return float(max(newest()[job]["mono"] for job, _ in lost)) - since

    def occupy(self, pod: Pod, kind: str, jobs: int) -> dict[tuple[int, int], Event]:
        """Have one pod's worker run so many jobs: the others are stopped while it takes them. What it runs."""
        others = [pid for other in self.fleet.pods if other is not pod for pid in other.workers()]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            self.produce("occupy", kind, jobs)
            self.wait_for_producers()
            (mine,) = pod.workers()
            self.wait(f"{jobs} running handlers", lambda: len(self.runs(mine)) == jobs)
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)
        return self.runs(mine)

    def drain(self, patience: float = PATIENCE) -> float:
        """Wait until no job is unfinished; the seconds that it took."""
        return self.wait("the last job to finish", lambda: not self.unfinished(), patience)

    def wait_for_living_owners(self, patience: float) -> float:
        """Wait until all that is RUNNING has a living owner; the seconds that it took.

        What has none when the patience is over is evidence against the fleet.
        """
        began = time.monotonic()
        while orphans := [sample for sample in self.sample_owners() if not sample.owner_alive]:
            if time.monotonic() - began > patience:
                self.samples += orphans
                break
            time.sleep(0.05)
        return time.monotonic() - began

    def sample_owners(self) -> list[Sample]:
        """Who owns what is RUNNING just now."""
        read = Evidence(self.lease)
        rows = gather.running_rows(self.url)
        gather.read_logs(self.directory, read)
        pids = [(row, read.workers.get(row.owner)) for row in rows]
        now = time.monotonic()
        return [
            Sample(now, row.job, row.token, row.owner, pid is not None and alive(pid), row.overdue) for row, pid in pids
        ]

    # --- judgement --------------------------------------------------------------------------------

    def evidence(self) -> Evidence:
        found = Evidence(self.lease, timeline=self.timeline, samples=self.samples, crashes_only=self.crashes_only)
        gather.read_history(self.history, found)
        gather.read_tables(self.url, found)
        gather.read_logs(self.directory, found)
        return found

    def evidence_if_any(self) -> Evidence | None:
        try:
            return self.evidence()
        except Exception as error:  # the server may be what has failed
            print(f"no evidence: {error}")
            return None

    def judge(self, *excused: str) -> Evidence:
        """Raise `ChaosFailure` with a report if an invariant is broken that is not `excused`."""
        found = self.evidence()
        if violations := [violation for violation in check(found) if violation.invariant not in excused]:
            raise ChaosFailure(report(self.seed, self.timeline, violations, found, self.directory))
        return found


#: The zones of the old host: those that the project's own code names.
KNOWN_ZONES = ("UTC", "Asia/Ho_Chi_Minh")


def host_without_zones(directory: Path, python_path: str) -> dict[str, str]:
    """The environment of a process on an old host, which knows few zones: no system files, no package tzdata."""
    (directory / "tzdata").mkdir(parents=True, exist_ok=True)
    (directory / "tzdata" / "__init__.py").touch()
    zones = directory / "zoneinfo"
    system = next(Path(path) for path in zoneinfo.TZPATH if (Path(path) / "UTC").exists())
    for name in KNOWN_ZONES:
        (zones / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(system / name, zones / name)
    return {"PYTHONTZPATH": str(zones), "PYTHONPATH": f"{directory}{os.pathsep}{python_path}"}
