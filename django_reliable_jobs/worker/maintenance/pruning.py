"""Pruning, a batch at a time: what there is to prune in millions of rows keeps neither reaping nor schedules waiting."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs import conf
from django_reliable_jobs.connections.statement_deadline import StatementDeadline
from django_reliable_jobs.store import guards, names, worker_row
from django_reliable_jobs.store.prune import prune, prune_attempts, prune_runs
from django_reliable_jobs.values.batch_size import BatchSize
from django_reliable_jobs.values.states import JobStatus

BATCH = 1000
#: Seconds between two rounds. A round goes on until nothing is left, with a pause as long as each batch took.
EVERY = 60.0

#: Deletes up to so many rows; how many.
Batch = Callable[[int], int]


class Pruning:
    """Used by one thread."""

    def __init__(self, alias: str, statement_deadline: StatementDeadline) -> None:
        self.alias = alias
        self.statement_deadline = statement_deadline
        self._at = time.monotonic() + random.uniform(0, EVERY)
        self._sizes: dict[str, BatchSize] = {}
        self._left: deque[tuple[str, Batch]] = deque()

    def when_due(self, connection: BaseDatabaseWrapper) -> float:
        """One batch, if it is time; seconds until the next one. Raises what the database raises: the others go on then."""
        if (wait := self._at - time.monotonic()) > 0:
            return wait
        if not self._left:
            self._left.extend(self._kinds())
        kind, batch = self._left.popleft()
        size = self._sizes.setdefault(kind, BatchSize(BATCH, self.statement_deadline.limit / 4))
        began, took_all, before = time.monotonic(), False, size.now
        try:
            with self.statement_deadline.wait_for(connection), size.of_one() as most:
                took_all = batch(most) < most
        finally:
            if not took_all:
                # One that failed comes last, and with fewer rows; with one row it has to wait for the next round.
                if size.now >= before:
                    self._left.appendleft((kind, batch))
                elif before > 1:
                    self._left.append((kind, batch))
            pause = time.monotonic() - began if self._left else EVERY * random.uniform(0.8, 1.2)
            self._at = time.monotonic() + pause
        return pause

    def _kinds(self) -> Iterator[tuple[str, Batch]]:
        settings = conf.current()
        for status in (JobStatus.DONE, JobStatus.CANCELLED, JobStatus.DEAD):
            if (age := settings.retention.get(status.value)) is not None:
                yield status.value, partial(prune, self.alias, status, age)
        if (age := settings.retention.get("CRON_RUN")) is not None:
            yield "CRON_RUN", partial(prune_runs, self.alias, age)
        yield "attempts", partial(prune_attempts, self.alias, settings.keep_attempts)
        yield "guards", partial(guards.prune, self.alias, guards.PRUNE_AGE)
        yield "workers", self._prune_workers

    def _prune_workers(self, most: int) -> int:
        worker_row.gone(self.alias)
        names.prune(self.alias)
        return 0
