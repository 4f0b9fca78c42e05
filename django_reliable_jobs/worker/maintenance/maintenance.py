"""Maintenance: reap, expire, prune, and fire schedules. Every worker does it; there is no leader.

Each pass is spaced by what it costs, so that it never takes more than a few per cent of the time.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple
from uuid import UUID

from django.db import Error as DatabaseTrouble
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs import conf
from django_reliable_jobs.connections.own_connection import own_connection
from django_reliable_jobs.connections.statement_deadline import StatementDeadline
from django_reliable_jobs.store import notify, reap
from django_reliable_jobs.values.batch_size import BatchSize
from django_reliable_jobs.values.states import JobStatus
from django_reliable_jobs.worker import log
from django_reliable_jobs.worker.leases.database_contact import DatabaseContact
from django_reliable_jobs.worker.leases.unknown_names import NameJudge, UnknownNames
from django_reliable_jobs.worker.maintenance import token_sequence
from django_reliable_jobs.worker.maintenance.pruning import Pruning
from django_reliable_jobs.worker.maintenance.rights import Rights
from django_reliable_jobs.worker.maintenance.scheduler import Scheduler
from django_reliable_jobs.worker.retry_pause import retry_pause
from django_reliable_jobs.worker.shared_state import MAINTENANCE, SharedState

logger = logging.getLogger("django_reliable_jobs.worker")

BATCH = 200
#: Seconds between two looks at the sequence of fencing tokens.
MARK_EVERY = 60.0
#: For how many seconds the leases of a dead sibling are looked for: its last claim may commit after its death.
DEAD_FOR = 10.0
#: Seconds between two rounds while the database is out of reach, at most.
RETRY_MOST = 5.0


class DeadWorker(NamedTuple):
    """One that its supervisor knows to be dead; `begun` are the tokens of the attempts that had begun, None if unknown."""

    worker: UUID
    begun: tuple[int, ...] | None = None


class Maintenance(threading.Thread):
    """The leases of `dead_workers` are taken back without waiting."""

    def __init__(
        self, alias: str, worker: UUID, contact: DatabaseContact, statement_deadline: StatementDeadline, shared: SharedState,
        unknown: UnknownNames, rights: Rights, dead_workers: Sequence[DeadWorker] = (),
    ) -> None:  # fmt: skip
        super().__init__(name="maintenance", daemon=True)
        self.alias = alias
        self.contact = contact
        self.statement_deadline = statement_deadline
        self.shared = shared
        self.scheduler = Scheduler(alias, worker)
        self.pruning = Pruning(alias, statement_deadline)
        self._reaped_at_once = BatchSize(BATCH, statement_deadline.limit / 4)
        self._expired_at_once = BatchSize(BATCH, statement_deadline.limit / 4)
        self.rights = rights
        self.dead_workers = list(dead_workers)
        self._died: SimpleQueue[DeadWorker] = SimpleQueue()
        self._pass_at = 0.0
        self._tokens_at = time.monotonic() + random.uniform(0, MARK_EVERY)
        self._dead_until = time.monotonic() + DEAD_FOR
        self._stopping = threading.Event()
        self._judge = NameJudge(alias, unknown, self._stopping)

    def run(self) -> None:
        self.shared.join(MAINTENANCE)
        failures = 0
        with own_connection(self.alias, "maintenance") as connection:
            while True:
                failed = False
                pause = min(conf.current().poll, conf.current().heartbeat)
                self.shared.moved()
                # Each for itself: what keeps schedules from firing must not keep leases from being reaped.
                parts = (
                    self._pass_if_due, self._tick, self._names, self.pruning.when_due, self._rights, self._tokens,
                )  # fmt: skip
                for part in parts:
                    try:
                        pause = min(pause, part(connection))
                    except DatabaseTrouble as error:
                        log.trouble("maintenance", error)
                        connection.close()
                        failed = True
                    except Exception as error:  # noqa: BLE001 - each part goes on, and the others
                        log.broken("maintenance", error)
                failures = failures + 1 if failed else 0
                if failed:
                    pause = max(pause, retry_pause(failures, min(conf.current().poll, RETRY_MOST), RETRY_MOST))
                if self._stopping.wait(max(0.0, pause)):
                    break
        self.shared.leave()

    def _tokens(self, connection: BaseDatabaseWrapper) -> float:
        """The mark says how far the sequence of tokens has come; seconds until it is raised again."""
        if time.monotonic() >= self._tokens_at:
            self._tokens_at = time.monotonic() + MARK_EVERY * random.uniform(0.8, 1.2)
            with self.statement_deadline.wait_for(connection):
                token_sequence.keep_in_step(self.alias)
        return self._tokens_at - time.monotonic()

    def take_back_first(self) -> None:
        """Before the engine starts: a burst is over when nothing is due, and what its predecessor lost has to be due."""
        try:
            with own_connection(self.alias, "maintenance") as connection:
                self._take_back(connection)
        except DatabaseTrouble as error:
            log.trouble("maintenance", error)

    def has_died(self, worker: DeadWorker) -> None:
        """From another thread: a sibling has died just now."""
        self._died.put(worker)

    def stop(self) -> None:
        self._stopping.set()

    def _tick(self, connection: BaseDatabaseWrapper) -> float:
        with self.statement_deadline.wait_for(connection):
            return self.scheduler.tick()

    def _rights(self, connection: BaseDatabaseWrapper) -> float:
        with self.statement_deadline.wait_for(connection):
            self.rights.when_due()
        return conf.current().poll

    def _names(self, connection: BaseDatabaseWrapper) -> float:
        """Seconds until there may be more to do."""
        waiting = partial(self.statement_deadline.wait_for, connection)
        self._judge.announce(waiting)
        self._judge.look(waiting, partial(self._tick, connection), may_judge=self.contact.reach() == math.inf)
        return conf.current().poll

    def _pass_if_due(self, connection: BaseDatabaseWrapper) -> float:
        """Seconds until the next pass."""
        with suppress(Empty):
            while True:
                self.dead_workers.append(self._died.get_nowait())
                self._dead_until = time.monotonic() + DEAD_FOR
                self._pass_at = 0.0
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
                self._take_back(connection)
        if self.contact.wait_for_reaping() <= 0:
            self._reap(connection)
        self._expire(connection)

    def _expire(self, connection: BaseDatabaseWrapper) -> None:
        while True:
            with self.statement_deadline.wait_for(connection), self._expired_at_once.of_one() as most:
                expired = reap.expire(self.alias, most)
            if expired:
                logger.info("%d jobs had not started when they expired: CANCELLED", expired)
            if expired < most:
                return

    def _take_back(self, connection: BaseDatabaseWrapper) -> None:
        """From workers that are known to be dead: what they had not begun is handed back, the rest was lost with them."""
        for dead in self.dead_workers:
            if dead.begun is None:
                continue
            with self.statement_deadline.wait_for(connection):
                released = reap.release_unheld(self.alias, dead.worker, dead.begun)
            if released:
                logger.info("%d jobs that worker %s held and had not begun are handed back", len(released), dead.worker)
                with self.statement_deadline.wait_for(connection):
                    notify.wake(self.alias, {notify.WORK_ANYWHERE})
        self._reap(connection)

    def _reap(self, connection: BaseDatabaseWrapper) -> None:
        while True:
            with self.statement_deadline.wait_for(connection), self._reaped_at_once.of_one() as most:
                dead = [dead.worker for dead in self.dead_workers]
                reach, latest = self.contact.may_reap()
                reaped = reap.reap(self.alias, conf.current().backoff, most, dead, reach=reach, latest=latest)
            for job in reaped:
                level = logging.ERROR if job.status == JobStatus.DEAD else logging.WARNING
                logger.log(
                    level, "%s #%s was lost with worker %s in attempt %s: it is %s", job.name, job.id, job.worker,
                    job.attempts, job.status,
                )  # fmt: skip
            with self.statement_deadline.wait_for(connection):
                notify.wake(self.alias, {notify.work_payload(job.queue, job.priority) for job in reaped if job.queued})
            if len(reaped) < most:
                return
