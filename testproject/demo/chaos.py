"""Who is killed when: the pod that has an import at 60 of its 100 records, and then a pod at random now and then."""

from __future__ import annotations

import random
import time

from django_reliable_jobs.models import Job, JobCheckpoint, JobStatus
from testproject.demo.fleet import Fleet, Kill
from testproject.shop import jobs

#: Records after which the first import loses its worker.
KILL_AFTER = 60
#: Seconds between two kills.
PAUSE = (12.0, 20.0)


class Chaos:
    def __init__(self, fleet: Fleet, first_job: int) -> None:
        self.fleet = fleet
        self.first_job = first_job
        self._open: list[Kill] = []
        self._import_met = False
        self._next = time.monotonic() + random.uniform(*PAUSE)

    def tick(self, *, only_import: bool = False) -> list[str]:
        """Kill a pod if its time has come. Returns what there is to tell. `only_import`: the end is near."""
        news = self._taken_over()
        if not self._import_met:
            return news + self._meet_import()
        if time.monotonic() >= self._next and not only_import and not self._open:
            pods = self.fleet.at_work()
            if len(pods) > 1:
                self._next = time.monotonic() + random.uniform(*PAUSE)
                news += self._kill(self.fleet.kill(random.choice(pods)))
        return news

    def _meet_import(self) -> list[str]:
        imports = Job.objects.filter(pk__gt=self.first_job, name=jobs.import_records.name)
        row = imports.filter(status=JobStatus.RUNNING, checkpoint__value__done__gte=KILL_AFTER).first()
        pod = self.fleet.workers().get(row.locked_by) if row is not None and row.locked_by is not None else None
        if row is None or pod is None:
            return []
        self._import_met = True
        news = self._kill(self.fleet.kill(pod))
        state = JobCheckpoint.objects.values_list("value", flat=True).get(pk=row.pk) or {}
        return [*news, f"one of them: {row}, with {state['done']} of 100 records done"]

    def _kill(self, kill: Kill) -> list[str]:
        self._open.append(kill)
        return [f"{kill.pod.name} is killed with SIGKILL; it was running {_jobs(len(kill.held))}"]

    def _taken_over(self) -> list[str]:
        news = []
        for kill in [one for one in self._open if one.left() == 0]:
            self._open.remove(kill)
            if kill.held:
                took = time.monotonic() - kill.at
                news.append(f"{_jobs(len(kill.held))} of {kill.pod.name}: taken over {took:.1f} s after the kill")
        return news


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
