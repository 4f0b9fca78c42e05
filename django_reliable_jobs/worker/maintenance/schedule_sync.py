"""Keeps the rows of schedules in step with the code, from workers of which some may have an older version of it.

Each app's code has a fingerprint, that of no schedule at all included, and the table of releases says which one is the current
one: it alone writes the app's rows. A fingerprint that was never seen is a newer version and becomes the current one at once.
One that was replaced comes back when no worker with the current one has been seen for `ALIVE` seconds: a rollback. Two services
with different apps do not meet here at all; with different versions of one app the newer one writes, as long as it lives.
With a RELEASE of their own two sets of one app live beside each other: each is a `source` of its own.

After an outage nobody has been seen for long, though all may be alive. So an app is taken back only when workers with that
version, this one or those before it in its place, have been in touch for `ALIVE` seconds without a break; the table counts.
"""

from __future__ import annotations

import logging
import random
import time

from django.apps import apps
from django.db import OperationalError, transaction

from django_reliable_jobs.definitions import registry
from django_reliable_jobs.definitions import schedule as schedule_definitions
from django_reliable_jobs.definitions.schedule import ScheduleDefinition
from django_reliable_jobs.schedules import next_fire
from django_reliable_jobs.store.schedules import due as schedule_due
from django_reliable_jobs.store.schedules import rows
from django_reliable_jobs.store.schedules.rows import Drift, ReleaseStanding
from django_reliable_jobs.worker import log

logger = logging.getLogger("django_reliable_jobs.scheduler")

#: Seconds between two looks, and until the next one when another worker is at it.
EVERY = 30.0
SOON = 1.0
#: Seconds without a look that are a break in contact, and without a sign of life after which no worker with a version is
#: alive. The sum of two looks' distance and a break is less than the latter, so that no outage looks like a rollback.
BREAK = 2 * EVERY
ALIVE = 4 * EVERY
#: Seconds after which a worker says that its schedules are not in force; between two lines about the same thing.
NOT_IN_FORCE, SAY_EVERY = 900.0, 3600.0
#: Seconds without a sign of life after which the set of another RELEASE is taken away.
ABANDONED = 86_400.0
#: Seconds after which a schedule is overdue: no worker knows its job, or there is none.
OVERDUE = 60.0


class ScheduleSync:
    """Used by one thread. `current` are the apps whose current version this process has."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.current: frozenset[str] = frozenset()
        self._look_at = 0.0
        self._said: dict[str, float] = {}

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
                log.unknown_job(name)

    def _say(self, level: int, what: str, *values: object) -> None:
        """Each line at most once in a while: it says what goes on."""
        now, line = time.monotonic(), what % values
        if now - self._said.get(line, float("-inf")) >= SAY_EVERY:
            if len(self._said) > 1000:
                self._said.clear()
            self._said[line] = now
            logger.log(level, "%s", line)

    def may_judge(self, source: str) -> bool:
        """Whether this process can say that a schedule is broken: a newer version of its app may see more in it."""
        return not source or source in self.current

    def look(self) -> bool:
        """Whether all is as it should be now; if not, it was another worker's turn.

        Nearly every look finds nothing to change. It holds no transaction open, which a process that is stopped in the
        middle would leave to others to wait for, a migration among them. What it saw decides only whether there is to be a
        transaction, which looks again under its lock.
        """
        definitions = schedule_definitions.all_schedules()
        defined = {each.source for each in definitions}
        installed = {schedule_definitions.scoped(config.label) for config in apps.get_app_configs()}
        fingerprints = {
            source: schedule_definitions.fingerprint(each for each in definitions if each.source == source)
            for source in sorted(installed | defined)
        }
        rows.seen(self.alias, fingerprints, BREAK)
        reread = rows.releases(self.alias, fingerprints, BREAK)
        current, activated = _split(reread)
        abandoned = self._abandoned(reread)
        differs = self._differs(definitions, current | activated)
        if activated or differs or abandoned:
            with transaction.atomic(using=self.alias, durable=True):
                if not rows.lock(self.alias):
                    return False
                # Anew: this process may have stood still, and with it the contact that lets it take an app back.
                reread = rows.releases(self.alias, fingerprints, BREAK)
                current, activated = _split(reread)
                if activated:
                    rows.activate(self.alias, {source: fingerprints[source] for source in activated})
                gone = self._write(definitions, current | activated)
                for source in self._abandoned(reread):
                    gone += rows.retire(self.alias, [source], [])
                    logger.warning("no worker with the schedules of %s was seen for a day, they are taken away", source)
            self._tell(reread, activated, defined, gone)
        for each in reread:
            if each.source not in current | activated and each.in_touch > NOT_IN_FORCE:
                self._say(
                    logging.WARNING, "the schedules of %s are not as this worker's code says: a newer version's are in force,"
                    " whose workers live. If both are to live on, give each its RELEASE", each.source,
                )  # fmt: skip
        self.current = frozenset(current | activated)
        return True

    def _abandoned(self, reread: list[ReleaseStanding]) -> list[str]:
        """After an outage nobody has been seen for long: asked only when we have been in touch."""
        if not any(each.in_touch >= ALIVE for each in reread):
            return []
        sources = [each.source for each in reread]
        return rows.abandoned(self.alias, sorted(map(schedule_definitions.app_of, sources)), sources, ABANDONED)

    def _tell(
        self, reread: list[ReleaseStanding], activated: set[str], defined: set[str], gone: list[tuple[str, bool]]
    ) -> None:
        for name, paused in gone:
            stays = "; it stays paused if it comes back" if paused else ""
            logger.info("schedule %s is not defined any more, it is taken away%s", name, stays)
        for each in reread:
            if each.source not in activated:
                continue
            if each.unseen is not None and each.unseen <= ALIVE and (each.source in defined or gone):
                logger.warning(
                    "the schedules of %s are from now on as this worker's code defines them, instead of another version's,"
                    " whose workers were seen %.0f s ago: as it should be in a deploy. If both are to live on, give each its"
                    " RELEASE", each.source, each.unseen,
                )  # fmt: skip
            elif each.source in defined:
                logger.info("the schedules of %s are from now on as this worker's code defines them", each.source)

    def _differs(self, definitions: list[ScheduleDefinition], mine: set[str]) -> bool:
        """Whether there is something to write for these apps. Says what is not, because it is another service's."""
        wanted = [each for each in definitions if each.source in mine]
        drifts = rows.drift(self.alias, wanted, ALIVE) if wanted else []
        anothers = {drift.name: drift for drift in drifts if _is_anothers(drift, mine)}
        for each in wanted:
            drift = anothers.get(each.name)
            if drift is not None and not (drift.only_owner and _same_app(drift.owner, each.source)):
                self._say(
                    logging.ERROR, "schedule %s of %s is defined by %s too, whose it stays: give one of them a name=",
                    each.name, each.source, drift.owner,
                )  # fmt: skip
        surplus = bool(mine) and rows.surplus(self.alias, sorted(mine), sorted(each.name for each in wanted))
        return len(drifts) > len(anothers) or surplus

    def _write(self, definitions: list[ScheduleDefinition], mine: set[str]) -> list[tuple[str, bool]]:
        """Which schedules were taken away, and whether they were paused."""
        now = schedule_due.now(self.alias)
        by_name = {each.name: each for each in definitions if each.source in mine}
        for drift in rows.drift(self.alias, list(by_name.values()), ALIVE):
            each = by_name[drift.name]
            if _is_anothers(drift, mine):
                continue
            if drift.owner == "":
                logger.warning(
                    "schedule %s was made by a person; the code of %s defines it now", each.name, each.source
                )
            rows.save(self.alias, each, next_fire(each.timetable, each.rules, now), now)
        return rows.retire(self.alias, sorted(mine), sorted(by_name)) if mine else []


def _split(reread: list[ReleaseStanding]) -> tuple[set[str], set[str]]:
    """The apps whose current version this process has, and those whose current version it is to become."""
    current = {each.source for each in reread if each.is_current}
    return current, {each.source for each in reread if _takes_over(each)}


def _takes_over(standing: ReleaseStanding) -> bool:
    if standing.is_current:
        return False
    gone = standing.unseen is None or standing.unseen > ALIVE
    return not standing.is_known or (gone and standing.in_touch >= ALIVE)


def _same_app(owner: str | None, source: str) -> bool:
    return owner is not None and schedule_definitions.app_of(owner) == schedule_definitions.app_of(source)


def _is_anothers(drift: Drift, mine: set[str]) -> bool:
    """Another service's code has a schedule of this name, and is alive."""
    return bool(drift.owner) and drift.owner not in mine and drift.owner_is_alive
