"""Where the engine looks for jobs, and how many it would take.

A full look (`discover`) names the (queue, priority) pairs with work. Between two of them the engine claims from the
pairs that it knows, each from where its last claim ended, so that the index entries of jobs which were just taken are
not walked again and again while an open snapshot keeps them from being removed. A full look starts from the
beginning, and the next claims from the first job that it found: so it finds what was committed late with an old
`run_at`, and what a rival gave back. How often it comes is decided by what it costs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime

from django_reliable_jobs.lease import Lease
from django_reliable_jobs.store.discover import Work
from django_reliable_jobs.store.exchange import BEGINNING, Exchanged, Pair, Wish
from django_reliable_jobs.worker.options import QueueFilter

#: Seconds between two full looks while there is work: 20 times what one costs, within these bounds.
FULL_LOOK = (0.2, 1.0)
#: Candidates looked at beyond those wanted; doubled while rivals hold them, and then reduced again.
SPARE = 16
MAX_WINDOW = 4096
START = (BEGINNING, 0)


class Claiming:
    """The engine's knowledge of what there is to claim. Used by the engine's thread only."""

    def __init__(self, queues: QueueFilter, poll: float) -> None:
        self.queues = queues
        self.poll = poll
        #: Per pair the `run_at` and id of the last job that was claimed from it; many jobs may share a `run_at`.
        self.sinces: dict[tuple[str, int], tuple[datetime, int]] = {}
        #: Monotonic time of the next full look.
        self.look_at = 0.0
        #: The last claim got all that it asked for, or was told of new work: ask again at once.
        self.more = False
        #: The pair of the notifications that are the only reason to ask.
        self._news: tuple[str, int] | None = None
        self._spare = SPARE

    def told(self, queue: str, priority: int) -> None:
        """A notification names a pair with work."""
        if queue in self.queues:
            pair = (queue, priority)
            self.sinces.setdefault(pair, START)
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

    def looked(self, found: Iterable[Work], cost: float) -> None:
        """Take over what a full look found."""
        mine = [work for work in found if work.queue in self.queues]
        self.sinces = {(work.queue, work.priority): (work.since, 0) for work in mine if work.due_in <= 0}
        later = min((work.due_in for work in mine if work.due_in > 0), default=self.poll)
        pause = min(FULL_LOOK[1], max(FULL_LOOK[0], 20 * cost)) if self.sinces else self.poll
        self.look_at = time.monotonic() + max(0.001, min(pause, self.poll, later))
        self._news = None
        self.more = bool(self.sinces)

    def wish(self, free: int, ahead: int, held_by_queue: dict[str, int], *, settles: bool = True) -> Wish | None:
        """What to ask for; None when there is nothing to ask.

        Without anything to settle, free slots ask in one place only if they were told of one, or know of no other.
        """
        if free + ahead <= 0 or not self.sinces:
            return None
        pairs = []
        if free > 0 and not settles and (len(self.sinces) == 1 or self._news):
            pair = self._news or next(iter(self.sinces))
            if pair[0] not in self.queues.caps:
                since, job_id = self.sinces[pair]
                return Wish(free, 0, [Pair(*pair, since, None, job_id)], light=True)
        for (queue, priority), (since, job_id) in self.sinces.items():
            cap = self.queues.caps.get(queue)
            left = None if cap is None else cap - held_by_queue.get(queue, 0)
            if left is None or left > 0:
                pairs.append(Pair(queue, priority, since, left, job_id))
        if not pairs:
            self.more = False  # every queue with work is at its cap
            return None
        return Wish(max(free, 0), max(ahead, 0), pairs, max(free, 0) + max(ahead, 0) + self._spare)

    def claimed(self, wish: Wish, got: Exchanged) -> None:
        """Learn from what a claim brought."""
        for lease in got.leases:
            self._advance(lease)
        asked = wish.free + wish.ahead
        # Rivals held what we looked at: look further, at once if slots are free. When only ahead of free slots too little
        # came, a job that must not be taken ahead may stand at the head instead, and only a free slot helps.
        short = len(got.leases) < asked and got.candidates >= wish.window
        starved = short and len(got.leases) < wish.free
        most = MAX_WINDOW if starved else max(SPARE, asked)
        self._spare = min(most, self._spare * 2) if short else max(SPARE, self._spare * 7 // 8)
        self._news = None
        self.more = starved or len(got.leases) >= asked

    def _advance(self, lease: Lease) -> None:
        pair = (lease.queue, lease.priority)
        here = (lease.run_at, lease.job_id)
        if here > self.sinces.get(pair, here):
            self.sinces[pair] = here
