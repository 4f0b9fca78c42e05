"""Keeps the rows of schedules in step with the code, from workers of which some may have an older version of it.

Each app's code has a fingerprint, and the table of releases says which one is the current one: it alone writes the app's
rows. A fingerprint that was never seen is a newer version and becomes the current one at once. One that was replaced comes
back when no worker with the current one has been seen for `ALIVE` seconds: a rollback. Two services with different
apps do not meet here at all; with different versions of one app the newer one writes, as long as it lives.

After an outage nobody has been seen for long, though all may be alive. So a worker takes an app back only after it has
itself been in touch for `ALIVE` seconds without a break.
"""

from __future__ import annotations

import logging
import random
import time

from django.apps import apps
from django.db import OperationalError, transaction

from django_reliable_jobs import registry, scheduling
from django_reliable_jobs.schedules import next_fire
from django_reliable_jobs.scheduling import ScheduleDefinition
from django_reliable_jobs.store import schedule_due
from django_reliable_jobs.store import schedule_rows as rows
from django_reliable_jobs.store.schedule_rows import Drift, Standing
from django_reliable_jobs.worker import journal

logger = logging.getLogger("django_reliable_jobs.scheduler")

#: Seconds between two looks, and until the next one when another worker is at it.
EVERY = 30.0
SOON = 1.0
#: Seconds without a look that are a break in contact, and without a sign of life after which no worker with a version is
#: alive. The sum of two looks' distance and a break is less than the latter, so that no outage looks like a rollback.
BREAK = 2 * EVERY
ALIVE = 4 * EVERY
#: Seconds after which a schedule is overdue: no worker knows its job, or there is none.
OVERDUE = 60.0


class ScheduleSync:
    """Used by one thread. `current` are the apps whose current version this process has."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.current: frozenset[str] = frozenset()
        self._look_at = 0.0
        self._last_look = float("-inf")
        self._in_touch_since = float("inf")

    def when_due(self) -> None:
        """Look, if it is time to. A row that somebody has locked is no reason not to fire: it is tried again later."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + SOON
        try:
            done = self.look()
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != "55P03":  # lock_not_available
                raise
            logger.warning("schedules are not as the code says yet: somebody has a row locked")
            return
        if done:
            self._look_at = now + EVERY * random.uniform(0.8, 1.2)
            for name in schedule_due.unknown_jobs(self.alias, registry.names(), OVERDUE):
                journal.unknown_job(name)

    def may_judge(self, source: str) -> bool:
        """Whether this process can say that a schedule is broken: a newer version of its app may see more in it."""
        return not source or source in self.current

    def look(self) -> bool:
        """Whether it was this worker's turn."""
        definitions = scheduling.all_schedules()
        defined = {each.source for each in definitions}
        fingerprints = {
            source: scheduling.fingerprint(each for each in definitions if each.source == source)
            for source in sorted({config.label for config in apps.get_app_configs()} | defined)
        }
        with transaction.atomic(using=self.alias, durable=True):
            if not rows.lock(self.alias):
                return False
            in_touch = self._touched()
            standings = rows.releases(self.alias, fingerprints, defined)
            current = {s.source for s in standings if s.is_current}
            activated = {s.source for s in standings if _takes_over(s, in_touch)}
            if current:
                rows.seen(self.alias, {source: fingerprints[source] for source in current})
            if activated:
                rows.activate(self.alias, {source: fingerprints[source] for source in activated})
            self._write([each for each in definitions if each.source in current | activated], current | activated)
        for source in sorted(activated & defined):
            logger.info("the schedules of %s are from now on as this worker's code defines them", source)
        self.current = frozenset(current | activated)
        return True

    def _touched(self) -> float:
        """For how many seconds this process has looked regularly."""
        now = time.monotonic()
        if now - self._last_look > BREAK:
            self._in_touch_since = now
        self._last_look = now
        return now - self._in_touch_since

    def _write(self, definitions: list[ScheduleDefinition], mine: set[str]) -> None:
        now = schedule_due.now(self.alias)
        by_name = {each.name: each for each in definitions}
        for drift in rows.drift(self.alias, definitions, ALIVE):
            each = by_name[drift.name]
            if _is_anothers(drift, mine):
                logger.error(
                    "schedule %s of %s is defined by %s too, whose it stays: give one of them a name=",
                    each.name, each.source, drift.owner,
                )  # fmt: skip
                continue
            if drift.owner == "":
                logger.warning(
                    "schedule %s was made by a person; the code of %s defines it now", each.name, each.source
                )
            rows.save(self.alias, each, next_fire(each.timetable, each.rules, now), now)
        for name in rows.retire(self.alias, sorted(mine), sorted(by_name)) if mine else []:
            logger.info("schedule %s is not defined any more, it is taken away", name)


def _takes_over(standing: Standing, in_touch: float) -> bool:
    if standing.is_current:
        return False
    gone = standing.unseen is None or standing.unseen > ALIVE
    return not standing.is_known or (gone and in_touch >= ALIVE)


def _is_anothers(drift: Drift, mine: set[str]) -> bool:
    """Another service's code has a schedule of this name, and is alive."""
    return bool(drift.owner) and drift.owner not in mine and drift.owner_is_alive
