"""Schedules that could not be fired or computed here: what one of them costs, the others do not wait for."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from django_reliable_jobs.store.schedules.due import Due

logger = logging.getLogger("django_reliable_jobs.scheduler")

#: Seconds between two log lines of one kind about one schedule, and lines of one kind about different ones in that time.
COMPLAIN_EVERY = 60.0
LINES = 10
#: Tries in a row without a pause, and the longest pause in seconds. A pause is so many times as long as the try took.
TRIES = 3
LONGEST = 60.0
SPACED = 20.0
#: Seconds: one that took longer is left alone at once, however few its tries were.
SLOW = 1.0


@dataclass(slots=True)
class _Trouble:
    version: int
    tries: int = 0
    until: float = 0.0


class ScheduleTrouble:
    """Used by one thread; times are monotonic."""

    def __init__(self) -> None:
        self._by_id: dict[int, _Trouble] = {}
        self._minute = float("-inf")
        self._said: dict[str, set[int]] = {}
        self._unsaid: dict[str, int] = {}

    def __contains__(self, due: Due) -> bool:
        return due.id in self._by_id

    def aside(self) -> list[tuple[int, int]]:
        """(id, version) of those that this process leaves alone just now; an edit brings them back at once."""
        now = time.monotonic()
        return [(id_, each.version) for id_, each in self._by_id.items() if each.until > now]

    def suspect(self, due: Due) -> None:
        """It was fired together with others, and something went wrong: the next time it is fired alone."""
        self._of(due)

    def failed(self, due: Due, took: float) -> None:
        """After `took` seconds. After a few tries it is left alone for a while."""
        trouble = self._of(due)
        trouble.tries += 1
        if trouble.tries > TRIES or took > SLOW:
            pause = max(SPACED * took, 0.05 * 2.0 ** min(trouble.tries, 12))
            trouble.until = time.monotonic() + min(LONGEST, pause)

    def leave(self, due: Due, seconds: float = LONGEST) -> None:
        """Another worker may do better."""
        self._of(due).until = time.monotonic() + seconds

    def over(self, due: Due) -> None:
        self._by_id.pop(due.id, None)

    def complain(self, due: Due, kind: str, text: str, *args: object) -> None:
        """A log line about this schedule: of this kind at most one a minute, and at most `LINES` about all of them."""
        now = time.monotonic()
        if now - self._minute > COMPLAIN_EVERY:
            self._minute, self._said = now, {}
            for of_kind, unsaid in self._unsaid.items():
                logger.error("%d more schedules had the same trouble (%s) in the minute before", unsaid, of_kind)
            self._unsaid = {}
        said = self._said.setdefault(kind, set())
        if due.id in said:
            return
        said.add(due.id)
        if len(said) > LINES:
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
        else:
            logger.error(f"schedule %s{text}", due.name, *args)

    def _of(self, due: Due) -> _Trouble:
        trouble = self._by_id.get(due.id)
        if trouble is None or trouble.version != due.version:
            trouble = self._by_id[due.id] = _Trouble(due.version)
        return trouble
