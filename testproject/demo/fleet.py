"""The pods: worker processes that die now and then, and what an orchestrator does about it."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from django_reliable_jobs.models import Job, JobStatus, Worker
from testproject.demo.programs import Program

PODS = 3
SLOTS = 8
#: Seconds after which a pod that has ended is started again.
RESTART_AFTER = 1.0
#: Services that take their time and fail now and then, unless the environment says otherwise.
SHOP = {"SHOP_LATENCY": "0.3", "SHOP_TROUBLE": "0.05"}


class Pod(Program):
    def __init__(self, number: int, log: Path) -> None:
        env = {"LOG_LEVEL": "INFO"} | SHOP | {name: os.environ[name] for name in SHOP if name in os.environ}
        command = [sys.executable, "manage.py", "jobworker", "--slots", str(SLOTS)]
        super().__init__(f"pod {number}", command, log, env=env)
        self.killed = False
        self.start_at: float | None = None


@dataclass
class Kill:
    """A pod that was killed, and the jobs that it held: id -> token of the claim that died with it."""

    pod: Pod
    at: float
    held: dict[int, int]

    def left(self) -> int:
        """How many of these jobs nobody has taken over yet."""
        rows = Job.objects.filter(pk__in=self.held, status__in=[JobStatus.RUNNING, JobStatus.QUEUED])
        return sum(self.held[pk] == token for pk, token in rows.values_list("pk", "fencing_token"))


class Fleet:
    def __init__(self, log: Path) -> None:
        self.pods = [Pod(number, log) for number in range(1, PODS + 1)]

    def start(self) -> None:
        for pod in self.pods:
            pod.start()

    def tend(self) -> list[str]:
        """Start again what has ended. Returns what there is to tell about it."""
        news = []
        for pod in self.pods:
            if pod.running:
                continue
            if pod.start_at is None:
                pod.start_at = time.monotonic() + RESTART_AFTER
                if not pod.killed and pod.process is not None:
                    news.append(f"{pod.name} ended by itself, with status {pod.process.returncode}")
            elif time.monotonic() >= pod.start_at:
                pod.start()
                pod.killed, pod.start_at = False, None
                news.append(f"{pod.name} is started again")
        return news

    def workers(self) -> dict[UUID, Pod]:
        """The workers that have reported from the pods that run now."""
        by_group = {pod.group: pod for pod in self.pods if pod.running}
        found: dict[UUID, Pod] = {}
        for worker, pid in Worker.objects.values_list("pk", "pid"):
            try:
                pod = by_group.get(os.getpgid(pid))
            except ProcessLookupError:
                continue
            if pod is not None:
                found[worker] = pod
        return found

    def at_work(self) -> list[Pod]:
        """The pods whose worker has reported."""
        return list(dict.fromkeys(self.workers().values()))

    def kill(self, pod: Pod) -> Kill:
        """What happens when a node dies: SIGKILL for all of the pod's processes, whatever they are doing."""
        workers = [worker for worker, owner in self.workers().items() if owner is pod]
        pod.kill()
        pod.killed = True
        held = Job.objects.filter(status=JobStatus.RUNNING, locked_by__in=workers)
        return Kill(pod, time.monotonic(), dict(held.values_list("pk", "fencing_token")))
