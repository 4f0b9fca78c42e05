"""Maintenance: reap, expire, prune, and fire schedules. Every worker does it; there is no leader.

Each pass is spaced by what it costs, so that it never takes more than a few per cent of the time.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from django.db import Error as DatabaseTrouble
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs import conf
from django_reliable_jobs.states import JobStatus
from django_reliable_jobs.store import guards, names, notify, presence, reap
from django_reliable_jobs.store.connections import own_connection
from django_reliable_jobs.store.prune import prune, prune_runs
from django_reliable_jobs.worker import journal
from django_reliable_jobs.worker.contact import Contact
from django_reliable_jobs.worker.patience import Patience
from django_reliable_jobs.worker.scheduler import Scheduler
from django_reliable_jobs.worker.unknown_names import NameJudge, UnknownNames

logger = logging.getLogger("django_reliable_jobs.worker")

BATCH = 200
PRUNE_BATCH = 1000
#: Seconds between two prune passes; a pass goes on until nothing is left, with a pause as long as each batch took.
PRUNE_EVERY = 60.0
#: For how many seconds the leases of a dead sibling are looked for: its last claim may commit after its death.
DEAD_FOR = 10.0


class Maintenance(threading.Thread):
    """`dead_workers` are known to be dead (their supervisor says so): their leases are reaped without waiting."""

    def __init__(
        self, alias: str, worker: UUID, contact: Contact, patience: Patience, unknown: UnknownNames,
        dead_workers: Sequence[UUID] = (),
    ) -> None:  # fmt: skip
        super().__init__(name="maintenance", daemon=True)
        self.alias = alias
        self.contact = contact
        self.patience = patience
        self.scheduler = Scheduler(alias, worker)
        self.dead_workers = list(dead_workers)
        self._pass_at = 0.0
        self._dead_until = time.monotonic() + DEAD_FOR
        self._prune_at = time.monotonic() + random.uniform(0, PRUNE_EVERY)
        self._stopping = threading.Event()
        self._judge = NameJudge(alias, unknown, self._stopping)

    def run(self) -> None:
        with own_connection(self.alias, "maintenance") as connection:
            while True:
                pause = conf.current().poll
                # Each for itself: what keeps schedules from firing must not keep leases from being reaped.
                for part in (self._pass_if_due, self._tick, self._names):
                    try:
                        pause = min(pause, part(connection))
                    except DatabaseTrouble as error:
                        journal.trouble("maintenance", error)
                        connection.close()
                    except Exception:
                        logger.exception("maintenance failed")
                if self._stopping.wait(max(0.0, pause)):
                    return

    def take_back_first(self) -> None:
        """Before the engine starts: a burst is over when nothing is due, and what its predecessor lost has to be due."""
        try:
            with own_connection(self.alias, "maintenance") as connection:
                self._reap(connection)
        except DatabaseTrouble as error:
            journal.trouble("maintenance", error)

    def stop(self) -> None:
        self._stopping.set()

    def _tick(self, connection: BaseDatabaseWrapper) -> float:
        with self.patience.wait_for(connection):
            return self.scheduler.tick()

    def _names(self, connection: BaseDatabaseWrapper) -> float:
        """Seconds until there may be more to do."""
        waiting = partial(self.patience.wait_for, connection)
        self._judge.announce(waiting)
        self._judge.look(waiting, partial(self._tick, connection), may_judge=self.contact.reach() == math.inf)
        return conf.current().poll

    def _pass_if_due(self, connection: BaseDatabaseWrapper) -> float:
        """Seconds until the next pass."""
        if time.monotonic() >= self._pass_at:
            self._timed_pass(connection)
        return self._pass_at - time.monotonic()

    def _timed_pass(self, connection: BaseDatabaseWrapper) -> None:
        started = time.monotonic()
        self._pass_at = started + conf.current().poll
        self._pass(connection)
        pause = max(conf.current().poll, 20 * (time.monotonic() - started))
        reaping_in = self.contact.wait_for_reaping()
        if 0 < reaping_in < pause:
            pause = reaping_in + 0.001
        if self.dead_workers:
            pause = min(pause, 0.25)
        self._pass_at = time.monotonic() + pause

    def _pass(self, connection: BaseDatabaseWrapper) -> None:
        if self.dead_workers:
            if time.monotonic() > self._dead_until:
                self.dead_workers = []
            else:
                self._reap(connection)
        if self.contact.wait_for_reaping() <= 0:
            self._reap(connection)
        self._expire(connection)
        if time.monotonic() >= self._prune_at:
            self._prune(connection)
            self._prune_at = time.monotonic() + PRUNE_EVERY * random.uniform(0.8, 1.2)

    def _expire(self, connection: BaseDatabaseWrapper) -> None:
        expired = BATCH
        while expired == BATCH:
            with self.patience.wait_for(connection):
                if expired := reap.expire(self.alias, BATCH):
                    logger.info("%d jobs had not started when they expired: CANCELLED", expired)

    def _reap(self, connection: BaseDatabaseWrapper) -> None:
        while True:
            with self.patience.wait_for(connection):
                reaped = reap.reap(
                    self.alias, conf.current().backoff, BATCH, self.dead_workers, reach=self.contact.reach()
                )
            for job in reaped:
                level = logging.ERROR if job.status == JobStatus.DEAD else logging.WARNING
                logger.log(
                    level, "%s #%s was lost with worker %s in attempt %s: it is %s", job.name, job.id, job.worker,
                    job.attempts, job.status,
                )  # fmt: skip
            with self.patience.wait_for(connection):
                notify.wake(self.alias, {notify.work_payload(job.queue, job.priority) for job in reaped if job.queued})
            if len(reaped) < BATCH:
                return

    def _prune(self, connection: BaseDatabaseWrapper) -> None:
        retention = conf.current().retention
        for status in (JobStatus.DONE, JobStatus.CANCELLED, JobStatus.DEAD):
            self._prune_in_batches(connection, retention.get(status.value), partial(prune, self.alias, status))
        self._prune_in_batches(connection, retention.get("CRON_RUN"), partial(prune_runs, self.alias))
        self._prune_in_batches(connection, guards.PRUNE_AGE, partial(guards.prune, self.alias))
        with self.patience.wait_for(connection):
            presence.gone(self.alias)
            names.prune(self.alias)

    def _prune_in_batches(
        self, connection: BaseDatabaseWrapper, age: float | None, prune_batch: Callable[[float, int], int]
    ) -> None:
        while age is not None and not self._stopping.is_set():
            started = time.monotonic()
            with self.patience.wait_for(connection):
                if prune_batch(age, PRUNE_BATCH) < PRUNE_BATCH:
                    return
                self.scheduler.tick()  # two million old rows are no reason to be late with a schedule
            self._stopping.wait(time.monotonic() - started)
