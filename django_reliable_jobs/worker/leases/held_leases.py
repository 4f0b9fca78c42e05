"""The leases that a worker holds, and the outcomes that the database has not recorded yet.

A lease is held from the claim's answer until its outcome is recorded, or until it is known to be lost. Only the
engine's thread changes it; the heartbeat reads a copy.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from django.db import DataError
from django.db import Error as DatabaseTrouble

from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.store.exchange import RowState, Settlement, reread
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.lease import LeaseKey
from django_reliable_jobs.values.outcome import UNBEGUN, ErrorRecord
from django_reliable_jobs.values.states import REASON_NOT_STORED, JobStatus
from django_reliable_jobs.worker import log
from django_reliable_jobs.worker.shared_state import SharedState

logger = logging.getLogger("django_reliable_jobs.worker")

#: Seconds after which an outcome is offered again whose row somebody else had locked.
BUSY_PAUSE = 0.05
#: The same for one that the database did not take for a reason that is not the outcome's: doubled from the first to the second.
APART_PAUSE = (0.5, 5.0)
#: SQLSTATE classes of a value that the database refuses: data, a constraint, a limit (54: a value that is too large).
_REFUSED_VALUES = ("22", "23", "54")


class HeldLeases:
    """See the module's docstring."""

    def __init__(self, alias: str, shared: SharedState | None = None, worker: UUID | None = None) -> None:
        self.alias = alias
        self.worker = worker
        self._shared = shared
        self.held: dict[LeaseKey, Attempt] = {}
        self.counts: Counter[str] = Counter()
        #: How many jobs of those that are not held any more had begun.
        self.begun = 0
        self._unrecorded: dict[LeaseKey, Attempt] = {}
        self._again_at = 0.0
        #: Outcomes that could not be recorded even alone: when they are offered again, and the pause before that.
        self._apart: dict[LeaseKey, tuple[float, float]] = {}

    def hold(self, attempt: Attempt) -> None:
        self.held[attempt.key] = attempt

    def decided(self, attempt: Attempt) -> None:
        """The attempt has an outcome; an atomic job's is in the database already. Otherwise ignored."""
        if attempt.key not in self.held or attempt.outcome is None:
            return
        if attempt.settled:
            self._recorded(attempt)
        else:
            self._unrecorded[attempt.key] = attempt

    @property
    def nothing_held(self) -> bool:
        return not self.held

    def begun_in_all(self) -> int:
        """How many jobs have begun, those that run included. In any thread."""
        return self.begun + sum(attempt.started is not None for attempt in list(self.held.values()))

    def wait(self) -> float | None:
        """Seconds until there is something to offer; None when there is nothing."""
        waits = [self._again_at] if len(self._unrecorded) > len(self._apart) else []
        waits += [again_at for again_at, _ in self._apart.values()]
        return max(0.0, min(waits) - time.monotonic()) if waits else None

    def to_offer(self) -> list[Attempt]:
        if not self._unrecorded or time.monotonic() < self._again_at:
            return []
        return [attempt for key, attempt in self._unrecorded.items() if key not in self._apart]

    def to_offer_apart(self) -> list[Attempt]:
        """Those that would hold up the others, each for an exchange of its own."""
        now = time.monotonic()
        return [self._unrecorded[key] for key, (again_at, _) in self._apart.items() if again_at <= now]

    def held_by_queue(self) -> Counter[str]:
        return Counter(attempt.lease.queue for attempt in self.held.values())

    def account(self, offered: Iterable[Attempt], settled: set[LeaseKey]) -> None:
        """An exchange has answered. What it did not write is read again: only a lost lease is dropped."""
        refused = []
        for attempt in offered:
            if attempt.key in settled:
                self._recorded(attempt)
            else:
                refused.append(attempt)
        self._again_at = 0.0
        if not refused:
            return
        found = reread(self.alias, [attempt.key for attempt in refused], self.worker)
        for attempt in refused:
            standing = found[attempt.key]
            if standing is RowState.RECORDED:
                self._recorded(attempt)
            elif standing is RowState.LOST:
                if attempt.outcome is not UNBEGUN:  # nothing is lost by that
                    log.outcome_refused(attempt)
                    self.counts["refused"] += 1
                self._forget(attempt)
            else:
                self._again_at = time.monotonic() + BUSY_PAUSE

    def offer_one_by_one(
        self,
        exchange: Callable[[Sequence[Settlement]], set[LeaseKey]],
        reset: Callable[[], None],
        attempts: Iterable[Attempt] | None = None,
    ) -> None:
        """The database refused a batch, or would: one outcome that it does not store must not hold up the others.

        A value that the database refuses will never be stored: the job is DEAD. Anything else (an internal error, a damaged
        page, a privilege) may pass: the outcome is kept, and offered again for as long as its lease is held.
        """
        for attempt in list(self.to_offer() if attempts is None else attempts):
            offer = offer_of(attempt)
            try:
                self.account([attempt], exchange([offer]))
                if attempt.key in self._apart:
                    self._set_apart(attempt)  # somebody has its row locked
            except DatabaseTrouble as error:
                reset()
                attempt.progress = attempt.progress or offer.progress
                if log.is_connection_trouble(error):
                    return
                is_substitute = attempt.outcome is not None and attempt.outcome.reason == REASON_NOT_STORED
                if is_substitute or not _refuses_the_value(error):
                    log.not_recorded_yet(attempt, error)
                    self._set_apart(attempt)
                    continue
                logger.error(
                    "the outcome of %s #%s cannot be stored: %s", attempt.lease.name, attempt.lease.job_id, error
                )
                kept = ErrorRecord(type(error).__name__, "the outcome of this attempt could not be stored", "")
                attempt.outcome = outcome.dead(REASON_NOT_STORED, kept)
                attempt.progress = None

    def _set_apart(self, attempt: Attempt) -> None:
        _, pause = self._apart.get(attempt.key, (0.0, APART_PAUSE[0] / 2))
        pause = min(2 * pause, APART_PAUSE[1])
        self._apart[attempt.key] = (time.monotonic() + pause, pause)

    def _recorded(self, attempt: Attempt) -> None:
        self._forget(attempt)
        said = attempt.outcome
        if said is not None:
            self.counts[said.status.value] += 1
            if said.status is not JobStatus.DONE:
                log.not_done(attempt)

    def _forget(self, attempt: Attempt) -> None:
        if self.held.pop(attempt.key, None) is not None and attempt.started is not None:
            self.begun += 1
        self._unrecorded.pop(attempt.key, None)
        if self._apart:
            self._apart.pop(attempt.key, None)
        if attempt.begun_word is not None and self._shared is not None:
            self._shared.recorded(attempt.begun_word)
            attempt.begun_word = None


def offer_of(attempt: Attempt) -> Settlement:
    return Settlement(attempt.lease, attempt.outcome or outcome.RELEASED, attempt.take_progress())


def _refuses_the_value(error: DatabaseTrouble) -> bool:
    """Without a SQLSTATE it did not come to the server: the client has refused it."""
    state: str | None = getattr(error.__cause__, "sqlstate", None)
    return isinstance(error, DataError) if state is None else state.startswith(_REFUSED_VALUES)
