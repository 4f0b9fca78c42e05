"""Where the engine looks for jobs, and how many it would take.

A full look (`discover`) names the (queue, priority) pairs with work. Between two of them the engine claims from the
pairs that it knows, each from where its last claim ended, so that the index entries of jobs which were just taken are
not walked again and again while an open snapshot keeps them from being removed. A full look starts from the
beginning, and the next claims from the first job that it found: so it finds what was committed late with an old
`run_at`, and what a rival gave back. How often it comes is decided by what it costs; where there are many pairs, it
comes in parts.

No pair hides another for long. Each is looked at for itself, as far as there is room and a bit more, and further where
rivals hold what was looked at; one of which all is held is left for a moment. Where there are more than `PLACES`, a claim
asks in so many of them, those of a high priority first, the others of one priority by turns.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator
from datetime import datetime

from django_reliable_jobs.store.exchange import BEGINNING, ClaimRequest, Exchanged, Source
from django_reliable_jobs.store.queues_with_work import START_OF_LOOK, Look
from django_reliable_jobs.values.lease import Lease
from django_reliable_jobs.worker.options import QueueSelection

#: Seconds between two full looks while there is work, and between two parts of one: 20 times what one costs, within these bounds.
FULL_LOOK, PART_OF_A_LOOK = (0.2, 1.0), (0.01, 1.0)
#: Candidates looked at in a pair beyond those wanted; doubled while rivals hold them, and then reduced again.
SPARE = 16
MAX_WINDOW = 4096
#: Seconds for which a pair is left whose first MAX_WINDOW jobs are all held by others.
MOMENT = 0.25
#: Pairs that a claim asks in.
PLACES = 32
#: Free slots that the small claim may fill: it does not look at the size of what it takes.
SMALL = 32
START = (BEGINNING, 0)

Place = tuple[str, int]


class ClaimPlan:
    """The engine's knowledge of what there is to claim. Used by the engine's thread only."""

    def __init__(self, queues: QueueSelection, poll: float) -> None:
        self.queues = queues
        self.poll = poll
        #: Per pair the `run_at` and id of the last job that was claimed from it; many jobs may share a `run_at`.
        self.sinces: dict[Place, tuple[datetime, int]] = {}
        #: Monotonic time of the next look, and where it begins.
        self.look_at = 0.0
        self.look_from = START_OF_LOOK
        #: The last claim got all that it asked for, or was told of new work: ask again at once.
        self.more = False
        #: The pair of the notifications that are the only reason to ask.
        self._news: Place | None = None
        self._spares: dict[Place, int] = {}
        self._left_until: dict[Place, float] = {}
        # What the earlier parts of a look have found, or news have told meanwhile; how soon the first job of the future is due.
        self._seen: set[Place] = set()
        self._later = poll
        # Turns, by priority. Who is in a line and not in `sinces` any more is dropped when it comes to the front.
        self._lines: dict[int, deque[Place]] = {}
        self._in_line: set[Place] = set()

    @property
    def looked_everywhere(self) -> bool:
        """No look is half done."""
        return self.look_from == START_OF_LOOK

    def told(self, queue: str, priority: int) -> None:
        """A notification names a pair with work."""
        if queue in self.queues:
            pair = (queue, priority)
            if pair not in self.sinces:
                self._add(pair, START)
            if not self.looked_everywhere:
                self._seen.add(pair)
            self._news = pair if not self.more or self._news == pair else None
            self.more = True

    def freed(self) -> None:
        """Held jobs have gone: a queue that was at its cap may have room again."""
        if self.queues.caps:
            self._news = None
            self.more = bool(self.sinces)

    def skip_to(self, queue: str, priority: int, since: datetime) -> None:
        """There is nothing for this worker before this moment."""
        pair = (queue, priority)
        if pair in self.sinces:
            self.sinces[pair] = max(self.sinces[pair], (since, 0))

    def look_soon(self, seconds: float = 0.0) -> None:
        """Something becomes due in so many seconds."""
        self.look_at = min(self.look_at, time.monotonic() + seconds)

    def looked(self, found: Look, cost: float) -> None:
        """Take over what a look, or a part of one, found; `cost` in seconds."""
        mine = [work for work in found.work if work.queue in self.queues]
        for work in mine:
            if work.due_in <= 0:
                self._seen.add((work.queue, work.priority))
                self._add((work.queue, work.priority), (work.since, 0))
        self._later = min([self._later, *(work.due_in for work in mine if work.due_in > 0)])
        now = time.monotonic()
        self.look_from = found.end or START_OF_LOOK
        if found.end is not None:
            self.look_at = now + min(PART_OF_A_LOOK[1], max(PART_OF_A_LOOK[0], 20 * cost))
        else:
            self.sinces = {pair: since for pair, since in self.sinces.items() if pair in self._seen}
            self._lines.clear()
            self._in_line.clear()
            for pair in self.sinces:
                self._queue_up(pair)
            self._spares = {pair: spare for pair, spare in self._spares.items() if pair in self.sinces}
            self._left_until = {pair: until for pair, until in self._left_until.items() if until > now}
            pause = min(FULL_LOOK[1], max(FULL_LOOK[0], 20 * cost)) if self.sinces else self.poll
            self.look_at = now + max(0.001, min(pause, self.poll, self._later))
            self._seen, self._later = set(), self.poll
        self._news = None
        self.more = bool(self.sinces)

    def _add(self, pair: Place, since: tuple[datetime, int]) -> None:
        self.sinces[pair] = since
        self._queue_up(pair)

    def _queue_up(self, pair: Place) -> None:
        if pair not in self._in_line:
            self._in_line.add(pair)
            self._lines.setdefault(pair[1], deque()).append(pair)

    def wish(
        self, free: int, ahead: int, held_by_queue: dict[str, int], *, settles: bool = True, payload_bytes: int = 2**60
    ) -> ClaimRequest | None:
        """What to ask for; None when there is nothing to ask.

        Without anything to settle, free slots ask in one place only if they were told of one, or know of no other.
        """
        if free + ahead <= 0 or not self.sinces:
            return None
        if 0 < free <= SMALL and not settles and (len(self.sinces) == 1 or self._news):
            pair = self._news or next(iter(self.sinces))
            if pair[0] not in self.queues.caps and pair not in self._left_until:
                since, job_id = self.sinces[pair]
                return ClaimRequest(free, 0, [Source(*pair, since, None, job_id)], light=True)
        wanted = max(free, 0) + max(ahead, 0)
        pairs = []
        for queue, priority in self._places(min(PLACES, max(4, wanted))):
            cap = self.queues.caps.get(queue)
            left = None if cap is None else cap - held_by_queue.get(queue, 0)
            if left is None or left > 0:
                since, job_id = self.sinces[queue, priority]
                window = wanted + self._spares.get((queue, priority), SPARE)
                pairs.append(Source(queue, priority, since, left, job_id, window))
        if not pairs:
            self.more = False  # every queue with work is at its cap, or held by others
            return None
        return ClaimRequest(max(free, 0), max(ahead, 0), pairs, wanted + SPARE, payload_bytes=payload_bytes)

    def _places(self, most: int) -> Iterator[Place]:
        """Where to ask now."""
        now = time.monotonic()
        for pair in [pair for pair, until in self._left_until.items() if until <= now]:
            del self._left_until[pair]
        if len(self.sinces) <= PLACES:
            yield from [pair for pair in self.sinces if pair not in self._left_until]
            return
        for priority in sorted(self._lines, reverse=True):
            line = self._lines[priority]
            for _ in range(len(line)):
                pair = line.popleft()
                if pair not in self.sinces:
                    self._in_line.discard(pair)
                    continue
                line.append(pair)
                if pair not in self._left_until:
                    yield pair
                    most -= 1
                    if not most:
                        return

    def claimed(self, wish: ClaimRequest, got: Exchanged) -> None:
        """Learn from what a claim brought."""
        for lease in got.leases:
            self._advance(lease)
        asked = wish.free + wish.ahead
        short = len(got.leases) < asked and not got.too_large
        # In all that was looked at the claim has tried to lock what it could.
        starved = short and len(got.leases) < wish.free
        further = False
        taken = Counter((lease.queue, lease.priority) for lease in got.leases) if short else Counter[Place]()
        many = len(self.sinces) > PLACES
        for pair, seen in zip(wish.pairs, got.seen, strict=False):
            place = (pair.queue, pair.priority)
            spare = self._spares.get(place, SPARE)
            if short and seen >= wish.window_of(pair):
                # Rivals held what we looked at: look further, at once if slots are free. When only ahead of free slots too
                # little came, a job that must not be taken ahead may stand at the head instead, and only a free slot helps.
                self._spares[place] = min(MAX_WINDOW if starved else max(SPARE, asked), spare * 2)
                if starved and spare >= MAX_WINDOW and not taken[place]:
                    self._left_until[place] = time.monotonic() + MOMENT
                    self.look_soon(MOMENT)
                else:
                    further = starved
            elif spare > SPARE:
                self._spares[place] = max(SPARE, spare * 7 // 8)
            if many and (not seen or (starved and not taken[place] and seen < wish.window_of(pair))):
                self.sinces.pop(place, None)  # until the next look, or news of it
        self._news = None
        full = len(got.leases) >= asked or (got.too_large and bool(got.leases))
        self.more = further or full or (many and starved and bool(self.sinces))

    def _advance(self, lease: Lease) -> None:
        pair = (lease.queue, lease.priority)
        here = (lease.run_at, lease.job_id)
        if here > self.sinces.get(pair, here):
            self.sinces[pair] = here
