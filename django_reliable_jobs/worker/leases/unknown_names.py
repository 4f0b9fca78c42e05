"""Job names that this worker does not know: left to others by the claim, and judged by maintenance (protocol 28).

The first row of such a name is claimed, put back in its place, and from then on the claim passes over the name. Whether
anybody else knows it is judged by what the workers say of themselves; see `store/names.py`.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta

from django_reliable_jobs import conf
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.store import names as store
from django_reliable_jobs.store.exchange import ClaimRequest, Exchanged
from django_reliable_jobs.store.queues_with_work import Work
from django_reliable_jobs.worker import log

#: Seconds for which a name is passed over before a row of it is looked at again: whoever knew it may be gone.
PASS_OVER = 60.0
#: Names that are passed over. Jobs of further ones wait for PAUSE seconds each time they are met, and lose their place.
MOST = 500
PAUSE = 15.0
#: Seconds of a claim that are worth remembering where it found something; such a claim is allowed a twentieth of the time.
DEAR, SHARE = 0.005, 20.0
#: Seconds between two looks at what is unknown; between two at what this worker's digest stands for.
LOOK_EVERY, ANNOUNCE_EVERY = 5.0, 60.0
#: Seconds without a heartbeat for which a worker still counts as living, at least.
ALIVE = 120.0
#: Rows that are looked at, and made DEAD, in one statement.
WALK, BATCH = 5000, 200


#: Makes a context for statements on the caller's connection, which is cut when they take too long.
Waiting = Callable[[], AbstractContextManager[None]]


class UnknownNames:
    """What the engine passes over. `names` and `claimed` are the engine's; `met_lately` is for maintenance."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        #: Per (queue, priority) where its first job stands that may be claimed, and until when that is believed.
        self._first: dict[tuple[str, int], tuple[datetime, float]] = {}
        #: The database's time of the last look.
        self._looked: datetime | None = None

    def met(self, name: str) -> float | None:
        """A row has a name that is not known here; for how many seconds it has to wait (None: it keeps its place)."""
        log.unknown_job(name)
        if name not in self._until and len(self._until) >= MOST:
            return PAUSE
        self._until[name] = time.monotonic() + PASS_OVER
        return None

    def names(self) -> list[str]:
        """The names to pass over."""
        if not self._until:
            return []
        now = time.monotonic()
        self._until = {
            name: until for name, until in self._until.items() if until > now and not registry.is_known(name)
        }
        return list(self._until)

    def met_lately(self) -> list[str]:
        now = time.monotonic()
        return [name for name, until in list(self._until.items()) if until > now and not registry.is_known(name)]

    def skip(self, found: list[Work]) -> list[Work]:
        """What a look found, without the rows at the heads of which we know that they are not for us.

        A job that is put among them later is found when that knowledge is old; how old it may get, its price says.
        """
        if not self._until:
            return found
        now = time.monotonic()
        self._first = {place: first for place, first in self._first.items() if first[1] > now}
        if found:
            self._looked = found[0].since - timedelta(seconds=found[0].due_in + 0.001)
        return [self._from_first(work) for work in found]

    def _from_first(self, work: Work) -> Work:
        first = self._first.get((work.queue, work.priority))
        return work._replace(since=first[0]) if first is not None and first[0] > work.since else work

    def claimed(self, wish: ClaimRequest, got: Exchanged, seconds: float) -> list[tuple[str, int, datetime]]:
        """A claim took so long: the places to which it need not come back so soon, and where to go on there."""
        if seconds <= DEAR or self._looked is None:
            return []
        firsts: dict[tuple[str, int], datetime] = {}
        for lease in got.leases:
            place = (lease.queue, lease.priority)
            firsts[place] = min(lease.run_at, firsts.get(place, lease.run_at))
        if not got.candidates:  # it went through all that was due when we looked
            firsts = dict.fromkeys(((pair.queue, pair.priority) for pair in wish.pairs), self._looked)
        until = time.monotonic() + SHARE * seconds
        for place, first in firsts.items():
            self._first[place] = (first, self._first.get(place, (first, until))[1])
        return [(*place, first) for place, first in firsts.items()]


class NameJudge:
    """Maintenance's part; used by one thread. `stopping` ends a long walk.

    Its methods take `waiting`, which a statement is run in, and `between`, which is called between the statements of a walk.
    """

    def __init__(self, alias: str, unknown: UnknownNames, stopping: threading.Event) -> None:
        self.alias = alias
        self.unknown = unknown
        self._stopping = stopping
        self._look_at = 0.0
        self._announced = ("", 0.0)

    def announce(self, waiting: Waiting) -> None:
        """Say which names this worker knows, if that is news or was said long ago."""
        known, now = registry.known(), time.monotonic()
        if known.digest != self._announced[0] or now >= self._announced[1]:
            with waiting():
                store.announce(self.alias, known)
            self._announced = (known.digest, now + ANNOUNCE_EVERY)

    def look(self, waiting: Waiting, between: Callable[[], object], *, may_judge: bool) -> None:
        """Forget, meet, judge."""
        if time.monotonic() < self._look_at:
            return
        settings = conf.current()
        after, alive = settings.unknown_job_after, max(ALIVE, 2 * settings.lease)
        self._look_at = time.monotonic() + min(LOOK_EVERY, max(settings.poll, after / 4)) * random.uniform(0.8, 1.2)
        with waiting():
            store.forget(self.alias, alive)
            store.meet(self.alias, self.unknown.met_lately(), alive)
            names = store.judged(self.alias, after, alive) if may_judge else []
        if names:
            dead = Counter[str]()
            found = self._make_dead(names, after, alive, waiting, between, dead)
            log.unknown_dead(dead, after)
            if not found:
                with waiting():
                    store.done(self.alias, names)

    def _make_dead(
        self, names: list[str], after: float, alive: float, waiting: Waiting, between: Callable[[], object],
        dead: Counter[str],
    ) -> bool:  # fmt: skip
        """Whether there are jobs of these names, or may be; counts in `dead` what became of them."""
        found = False
        position: store.Position | None = store.BEGINNING
        while position is not None and not self._stopping.is_set():
            started = time.monotonic()
            with waiting():
                ids, position = store.walk(self.alias, names, position, WALK)
            found = found or bool(ids)
            for start in range(0, len(ids), BATCH):
                with waiting():
                    batch = store.dead(self.alias, ids[start : start + BATCH], after, alive)
                if not batch:
                    return True  # another worker is at it, or one that knows the name has come
                dead.update(batch)
                between()
            between()
            self._stopping.wait(time.monotonic() - started)
        return found or position is not None
