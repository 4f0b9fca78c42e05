"""The scheduler: finds out what is due and fires it. Every worker has one; there is no leader.

Fire times are computed here, from the row; the row decides (`store/schedules/fire.py`). Due-ness is the database's clock
alone, and waits are monotonic. A schedule that no worker can compute is marked broken, one that cannot be fired is tried
again later; neither stops the others. A statement records a bounded number of runs, so that what was missed in months
is made up for in steps, each of which stays.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from uuid import UUID

from django.db import Error as DatabaseTrouble

from django_reliable_jobs import conf
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.firing.plan import plan_firing
from django_reliable_jobs.firing.runs import MOST_RUNS, fire_alone
from django_reliable_jobs.store import notify
from django_reliable_jobs.store.schedules import due as schedule_due
from django_reliable_jobs.store.schedules import fire as store
from django_reliable_jobs.store.schedules.due import Due
from django_reliable_jobs.store.schedules.fire import Fired, Firing, Outcome
from django_reliable_jobs.values.error_text import safe_text
from django_reliable_jobs.worker.maintenance.schedule_sync import ScheduleSync
from django_reliable_jobs.worker.maintenance.schedule_trouble import ScheduleTrouble

logger = logging.getLogger("django_reliable_jobs.scheduler")

#: Schedules looked at in one tick.
BATCH = 50
#: Seconds by which workers look at the same fire time one after the other, so that most find it fired.
SPREAD = 0.02
#: Seconds until what could not be fired is looked at again, doubled each time up to POLL.
AGAIN = 0.05
#: Seconds that a tick gives to statements, and among them to those that are fired one by one, and that may have to wait
#: for somebody. What is left is still due.
TOGETHER = 2.0
APART = 1.0
#: Seconds that the server gives to the fire of a schedule that had trouble before.
BOUND = 2.0

#: Seconds between two looks at what is marked broken, and without a heartbeat after which a worker may not be living.
MEND_EVERY = 30.0
ALIVE = 120.0

#: SQLSTATEs of a statement that failed while its connection is well: somebody's lock, a deadlock, a cancelled query.
_WELL = {"55P03", "40P01", "57014"}


class Scheduler:
    """Used by one thread. `tick` says in how many seconds it wants to be called again."""

    def __init__(self, alias: str, worker: UUID) -> None:
        self.alias = alias
        self.worker = worker
        self._sync = ScheduleSync(alias)
        self._fruitless = 0
        self._mend_at = 0.0
        self._trouble = ScheduleTrouble()

    def tick(self) -> float:
        """Fire what is due. Raises what the database raises when it is out of reach."""
        self._sync.when_due()
        self._mend_when_due()
        poll = conf.current().poll
        look = schedule_due.look(self.alias, registry.names(), BATCH, self._trouble.aside())
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
            self._trouble.leave(due)
            self._trouble.complain(
                due, "plan", " cannot be computed by this version of the code, it is left to a newer one: %s", problem
            )
            return None
        refused = schedule_due.refuse(self.alias, due, self.worker, problem, max(ALIVE, 2 * conf.current().lease))
        if refused:
            logger.error("schedule %s cannot be computed, it is marked broken: %s", due.name, problem)
        elif refused is False:
            self._trouble.leave(due)
            self._trouble.complain(due, "host", " cannot be computed here, it is left to other workers: %s", problem)
        return None

    def _mend_when_due(self) -> None:
        """A host without a time zone, or with an older version of this package, may have marked what this one can compute."""
        now = time.monotonic()
        if now < self._mend_at:
            return
        self._mend_at = now + MEND_EVERY * random.uniform(0.8, 1.2)
        for due in schedule_due.broken(self.alias, registry.names()):
            try:
                plan_firing(due, registry.find(due.job_name))
            except Exception as error:  # noqa: BLE001 - it is broken
                logger.debug("schedule %s is broken here too: %s", due.name, safe_text(error, 300))
                continue
            if schedule_due.mend(self.alias, due):
                logger.warning("schedule %s was marked broken by another worker; it can be computed here", due.name)

    def _groups(self, firings: Sequence[Firing]) -> Iterator[list[Firing]]:
        """Most in one statement. One that may have to wait for somebody, or had trouble before, does not hold up others,
        nor does one that has much to catch up on."""
        apart = [each for each in firings if each.due in self._trouble or each.cancel or each.unique_keys()]
        alone = {id(each) for each in apart}
        together = sorted((each for each in firings if id(each) not in alone), key=lambda each: len(each.runs))
        began = time.monotonic()
        for group in _chunks(together):
            if time.monotonic() > began + TOGETHER:
                return
            yield group
        until = time.monotonic() + APART
        for firing in apart:
            if time.monotonic() > until:
                return
            yield [firing]

    def _fire(self, firings: list[Firing]) -> set[int]:
        began = time.monotonic()
        try:
            fired = self._try(firings)
        except DatabaseTrouble as error:
            state = getattr(error.__cause__, "sqlstate", None)
            lost = state is None or (state[:2] in ("08", "57", "25") and state not in _WELL)
            if len(firings) > 1:
                for firing in firings:
                    self._trouble.suspect(firing.due)
            else:
                self._trouble.failed(firings[0].due, time.monotonic() - began)
                problem = _first_line(error)
                self._trouble.complain(firings[0].due, "fire", " could not be fired, it is tried again: %s", problem)
            if lost:
                raise  # the connection, perhaps cut because one of these took for ever: each is fired alone from now on
            return set()
        for firing in firings:
            if firing.due.id in fired.schedules:
                self._trouble.over(firing.due)
                self._tell(firing)
        notify.wake(self.alias, {notify.work_payload(queue, priority) for _, queue, priority in fired.jobs})
        notify.wake(self.alias, {notify.cancel_payload(worker) for worker in fired.told})
        return fired.schedules

    def _try(self, firings: list[Firing]) -> Fired:
        if len(firings) > 1:
            return store.fire(self.alias, self.worker, firings)
        [firing] = firings
        if firing.due not in self._trouble:
            return fire_alone(self.alias, self.worker, firing)
        with store.bounded(self.alias, BOUND):
            return fire_alone(self.alias, self.worker, firing)

    def _tell(self, firing: Firing) -> None:
        """What a person may want to know about a fire that was not an ordinary one."""
        due = firing.due
        if firing.pause:
            logger.error("schedule %s is paused: its last %d jobs are DEAD", due.name, due.dead_lately)
        for run in firing.runs:
            if run.outcome is Outcome.SKIPPED_MISFIRE:
                logger.warning(
                    "schedule %s: %d fire times from %s to %s were missed and are skipped",
                    due.name, run.skipped_count, run.scheduled_for, run.skipped_through,
                )  # fmt: skip
        errors = [run for run in firing.runs if run.outcome is Outcome.ERROR]
        if errors:
            more = f" (and {len(errors) - 1} more fire times)" if len(errors) > 1 else ""
            self._trouble.complain(
                due, "error", ": no job for %s%s: %s", errors[0].scheduled_for, more, errors[0].detail
            )


def _chunks(firings: Sequence[Firing]) -> Iterator[list[Firing]]:
    """In the order given, with no more than `MOST_RUNS` runs in each."""
    chunk: list[Firing] = []
    size = 0
    for firing in firings:
        if chunk and size + len(firing.runs) > MOST_RUNS:
            yield chunk
            chunk, size = [], 0
        chunk.append(firing)
        size += len(firing.runs)
    if chunk:
        yield chunk


def _first_line(error: BaseException) -> str:
    return safe_text(error, 300).partition("\n")[0]
