"""The scheduler: finds out what is due and fires it. Every worker has one; there is no leader.

Fire times are computed here, from the row; the row decides (`store/schedules.py`). Due-ness is the database's clock
alone, and waits are monotonic. A schedule that cannot be computed is marked broken, one that cannot be fired is tried again
a little later; neither stops the others.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from uuid import UUID

from django.db import Error as DatabaseTrouble
from django.db import IntegrityError

from django_reliable_jobs import conf, registry
from django_reliable_jobs.schedule_jobs import without_jobs
from django_reliable_jobs.store import notify, schedule_due
from django_reliable_jobs.store import schedules as store
from django_reliable_jobs.store.schedule_due import Due
from django_reliable_jobs.store.schedules import Fired, Firing, Outcome
from django_reliable_jobs.text import safe_text
from django_reliable_jobs.worker.firing import plan_firing
from django_reliable_jobs.worker.schedule_sync import ScheduleSync

logger = logging.getLogger("django_reliable_jobs.scheduler")

#: Schedules fired in one statement.
BATCH = 50
#: Seconds by which workers look at the same fire time one after the other, so that most find it fired.
SPREAD = 0.02
#: Seconds until what could not be fired is looked at again, doubled each time up to POLL.
AGAIN = 0.05
#: Seconds that a tick gives to those that are fired one by one, and that may have to wait for somebody.
APART = 1.0
#: Seconds between two log lines about one schedule that cannot be fired.
COMPLAIN_EVERY = 60.0

#: SQLSTATEs of a statement that failed while its connection is well: somebody's lock, a deadlock, a cancelled query.
_WELL = {"55P03", "40P01", "57014"}


class Scheduler:
    """Used by one thread. `tick` says in how many seconds it wants to be called again."""

    def __init__(self, alias: str, worker: UUID) -> None:
        self.alias = alias
        self.worker = worker
        self._sync = ScheduleSync(alias)
        self._fruitless = 0
        #: Schedules that could not be fired with others, or at all: when that was said last.
        self._trouble: dict[int, float] = {}

    def tick(self) -> float:
        """Fire what is due. Raises what the database raises when it is out of reach."""
        self._sync.when_due()
        poll = conf.current().poll
        look = schedule_due.look(self.alias, registry.names(), BATCH)
        pause = poll if look.next_in is None else min(poll, look.next_in + random.uniform(0, SPREAD))
        if not look.count:
            self._fruitless = 0
            return pause
        planned = [firing for due in look.due if (firing := self._plan(due)) is not None]
        fired = [schedule for group in self._groups(planned) for schedule in self._fire(group)]
        if fired:
            self._fruitless = 0
            return 0.0
        # Others were faster, or it cannot be fired: the next look shows which.
        self._fruitless += 1
        return min(pause, AGAIN * 2.0 ** min(self._fruitless - 1, 10))

    def _plan(self, due: Due) -> Firing | None:
        try:
            return plan_firing(due, registry.find(due.job_name))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with this one, the others go on
            problem = safe_text(f"{type(error).__name__}: {error}", 1000)
        if not self._sync.may_judge(due.source):
            self._complain(due, f"cannot be computed by this version of the code, it is left to a newer one: {problem}")
        elif schedule_due.mark_broken(self.alias, due, problem):
            logger.error("schedule %s cannot be computed, it is marked broken: %s", due.name, problem)
        return None

    def _groups(self, firings: Sequence[Firing]) -> Iterator[list[Firing]]:
        """Most in one statement. One that may have to wait for somebody, or had trouble before, does not hold up others."""
        together: list[Firing] = []
        apart: list[Firing] = []
        for firing in firings:
            alone = firing.due.id in self._trouble or firing.cancel or _has_key(firing)
            (apart if alone else together).append(firing)
        if together:
            yield together
        until = time.monotonic() + APART
        for firing in apart:
            if time.monotonic() > until:  # what is left is still due
                return
            yield [firing]

    def _fire(self, firings: list[Firing]) -> set[int]:
        try:
            fired = self._try(firings)
        except DatabaseTrouble as error:
            state = getattr(error.__cause__, "sqlstate", None)
            if state is None or (state[:2] in ("08", "57", "25") and state not in _WELL):
                raise  # the connection
            if len(firings) > 1:
                return {schedule for firing in firings for schedule in self._fire([firing])}
            self._complain(firings[0].due, f"could not be fired, it is tried again: {_first_line(error)}")
            return set()
        for firing in firings:
            if firing.due.id in fired.schedules:
                self._trouble.pop(firing.due.id, None)
                _tell(firing)
        notify.wake(self.alias, {notify.work_payload(queue, priority) for _, queue, priority in fired.jobs})
        notify.wake(self.alias, {notify.cancel_payload(worker) for worker in fired.told})
        return fired.schedules

    def _try(self, firings: list[Firing]) -> Fired:
        try:
            return store.fire(self.alias, self.worker, firings)
        except IntegrityError:
            [firing, *others] = firings
            keys = [each.job.unique_key for each in firing.runs if each.job is not None and each.job.unique_key]
            if others or not keys:
                raise
        # An unfinished job holds the unique key. One that has expired is to give it up; otherwise this one is skipped.
        if not store.expire_holders(self.alias, keys):
            firing.runs = without_jobs(firing.runs)
        return store.fire(self.alias, self.worker, [firing])

    def _complain(self, due: Due, what: str) -> None:
        now = time.monotonic()
        if now - self._trouble.get(due.id, -COMPLAIN_EVERY) >= COMPLAIN_EVERY:
            self._trouble[due.id] = now
            logger.error("schedule %s %s", due.name, what)


def _first_line(error: BaseException) -> str:
    return safe_text(error, 300).partition("\n")[0]


def _has_key(firing: Firing) -> bool:
    return any(each.job is not None and each.job.unique_key is not None for each in firing.runs)


def _tell(firing: Firing) -> None:
    """What a person may want to know about a fire that was not an ordinary one."""
    name = firing.due.name
    if firing.pause:
        logger.error("schedule %s is paused: its last %d jobs are DEAD", name, firing.due.dead_lately)
    for run in firing.runs:
        if run.outcome is Outcome.SKIPPED_MISFIRE:
            logger.warning(
                "schedule %s: %d fire times from %s to %s were missed and are skipped",
                name, run.skipped_count, run.scheduled_for, run.skipped_through,
            )  # fmt: skip
        elif run.outcome is Outcome.ERROR:
            logger.error("schedule %s: no job for %s: %s", name, run.scheduled_for, run.detail)
