"""The engine: the one loop of a worker that talks to the job table (protocol 2).

It hands in the outcomes of what has finished and takes what may run, in one exchange. While an exchange is under way
more jobs finish; the next one takes them all, which is the group commit, with no timer.

Whoever has something to tell the engine puts it into `inbox`: slots and the watchdog their attempts, the listener
what it was notified of. Nobody else changes what is held.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from uuid import UUID

from django.db import Error as DatabaseTrouble

from django_reliable_jobs import conf
from django_reliable_jobs.connections.own_connection import own_connection
from django_reliable_jobs.connections.statement_deadline import StatementDeadline
from django_reliable_jobs.definitions import registry
from django_reliable_jobs.errors import UnknownJob
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.store import notify
from django_reliable_jobs.store.exchange import ClaimRequest, Settlement, exchange
from django_reliable_jobs.store.queues_with_work import look
from django_reliable_jobs.store.reap import release_unheld
from django_reliable_jobs.store.still_waiting import still_waiting
from django_reliable_jobs.values import outcome
from django_reliable_jobs.values.elapsed import elapsed
from django_reliable_jobs.values.lease import Lease, LeaseKey
from django_reliable_jobs.values.states import CLAIMABLE
from django_reliable_jobs.worker import log
from django_reliable_jobs.worker.handlers.slots import SlotPool
from django_reliable_jobs.worker.leases.claim_plan import ClaimPlan
from django_reliable_jobs.worker.leases.heartbeat import Heartbeat
from django_reliable_jobs.worker.leases.held_leases import HeldLeases, offer_of
from django_reliable_jobs.worker.leases.prefetch import MOST_BYTES, STALLED, Prefetch
from django_reliable_jobs.worker.leases.unknown_names import UnknownNames
from django_reliable_jobs.worker.leases.waiting import Waiting
from django_reliable_jobs.worker.options import WorkerOptions
from django_reliable_jobs.worker.retry_pause import retry_pause
from django_reliable_jobs.worker.shared_state import ENGINE

logger = logging.getLogger("django_reliable_jobs.worker")

#: Seconds between two tries while the database gives trouble: doubled from the first to the second.
TROUBLE_PAUSE = (0.1, 2.0)
#: Seconds between two extra heartbeats of a worker that has no free slots any more.
SHOW_EVERY = 0.5


#: Seconds that a burst waits for the database, or for its tables, before it gives up: nobody watches it, as in CI.
BURST_WAITS = 60.0


class WorkNotice:
    """News of work: in a queue at a priority, or (`queue` None) anywhere."""

    __slots__ = ("priority", "queue")

    def __init__(self, queue: str | None = None, priority: int = 0) -> None:
        self.queue = queue
        self.priority = priority


class Engine(threading.Thread):
    """`accepting` False: claim nothing more. `stopping` True: end when nothing is held."""

    def __init__(
        self, worker: UUID, options: WorkerOptions, held_leases: HeldLeases, pool: SlotPool, heartbeat: Heartbeat,
        prefetch: Prefetch, statement_deadline: StatementDeadline, inbox: SimpleQueue[Attempt | WorkNotice | None],
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(name="engine", daemon=True)
        self.worker = worker
        self.options = options
        self.held_leases = held_leases
        self.pool = pool
        self.heartbeat = heartbeat
        self.shared = heartbeat.shared
        self.prefetch = prefetch
        self.statement_deadline = statement_deadline
        self.inbox = inbox
        self._tell = tell
        self.accepting = True
        self.stopping = False
        self.failed = False
        self.ended = threading.Event()
        self.waiting = Waiting(pool)
        #: Claim no more than so many jobs, since a fresh process is to take over then; None: go on until it can.
        self.recycle_after = options.max_jobs_per_process
        self._claiming = ClaimPlan(options.queues, conf.current().poll)
        self._drained = False
        self._trouble = 0
        self._trouble_since = 0.0
        self._shown_at = 0.0
        self.unknown = UnknownNames()
        # A claim was asked for and not answered yet; until when its rows may still turn up; when to look for them.
        self._asked = False
        self._in_doubt_until = 0.0
        self._release_at = 0.0

    def run(self) -> None:
        self.shared.join(ENGINE)
        try:
            with own_connection(self.options.alias, "engine") as self._connection:
                while not self._done():
                    try:
                        self._round()
                        if self._trouble and self._connection.connection is not None:
                            self._trouble = 0
                            log.database_back()
                    except DatabaseTrouble as error:
                        self._recover(error)
        except BaseException:
            self.failed = True
            logger.exception("the engine failed, the worker ends")
        finally:
            self.shared.leave()
            self.ended.set()
            self._tell("ended")

    def _done(self) -> bool:
        if not self.held_leases.nothing_held:
            return False
        all_run = self.options.max_jobs is not None and self.held_leases.begun >= self.options.max_jobs
        return self.stopping or all_run or (self.options.burst and self._drained)

    def _round(self) -> None:
        self.shared.moved()
        self._collect(self._pause())
        if self._in_doubt_until:
            self._release_unheld()
        self._look_after_what_waits()
        offered = self.held_leases.to_offer()
        wish = self._wish(settles=bool(offered))
        if offered or wish is not None:
            self._exchange(offered, wish)
        if apart := self.held_leases.to_offer_apart():
            self.held_leases.offer_one_by_one(self._offer_alone, self._reset, apart)

    def _pause(self) -> float:
        """Seconds to wait for news."""
        until_offer = self.held_leases.wait()
        # It is seen to go on in each beat, also while there is nothing to do.
        waits = [conf.current().heartbeat / 2] + ([] if until_offer is None else [until_offer])
        if sum(self._room()) > 0:
            waits.append(0.0 if self._claiming.more else self._claiming.look_at - time.monotonic())
        if self._in_doubt_until:
            waits.append(self._release_at - time.monotonic())
        if (until_look := self.waiting.look_in()) is not None:
            waits.append(until_look)
        return max(0.0, min(waits))

    def _collect(self, timeout: float) -> None:
        """Take all that is in the inbox; wait up to `timeout` seconds for the first of it."""
        try:
            news = self.inbox.get(timeout=timeout) if timeout > 0 else self.inbox.get_nowait()
            while True:
                if isinstance(news, Attempt):
                    if news.took is not None:
                        self.prefetch.took(news.took)
                    self.held_leases.decided(news)
                elif news is not None:
                    self._told(news)
                news = self.inbox.get_nowait()
        except Empty:
            pass

    def _told(self, news: WorkNotice) -> None:
        if news.queue is None:
            self._claiming.look_soon()
        else:
            self._claiming.told(news.queue, news.priority)

    def _look_after_what_waits(self) -> None:
        """What no slot has begun is asked for again before it begins, and handed back when it has waited for too long."""
        if self.waiting.overdue():
            self.prefetch.handed_back()
            self._hand_back(self.pool.withdraw())
        elif asked := self.waiting.to_ask():
            asked_at = time.monotonic()
            with self.statement_deadline.wait_for(self._connection):
                good = still_waiting(self.options.alias, [attempt.key for attempt in asked])
            self._hand_back(self.waiting.answered(asked, good, asked_at))
            self._hand_back(self.pool.resume(accepting=self.accepting))

    def _hand_back(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            attempt.withdraw(outcome.UNBEGUN)
            self.held_leases.decided(attempt)

    def _room(self) -> tuple[int, int]:
        """How many jobs fit into free slots, and how many more may be held ahead of them."""
        if not self.accepting:
            return 0, 0
        spare = self.pool.size - len(self.pool.occupied)
        free = max(spare, 0)
        if free:
            self.prefetch.slot_free(all_begun=self.waiting.first() is None)
        elif time.monotonic() - self.pool.begun_at >= STALLED:
            return 0, 0
        ahead = max(spare + self.prefetch.ahead() - free, 0)
        left = self._jobs_left()
        if left is not None:
            free = min(free, left)
            ahead = min(ahead, left - free)
        return free, ahead

    def _jobs_left(self) -> int | None:
        limits = [n for n in (self.options.max_jobs, self.recycle_after) if n is not None]
        return max(0, min(limits) - self.held_leases.begun - len(self.held_leases.held)) if limits else None

    def _wish(self, *, settles: bool) -> ClaimRequest | None:
        free, ahead = self._room()
        if free + ahead <= 0:
            return None
        if time.monotonic() >= self._claiming.look_at:
            started = time.monotonic()
            with self.statement_deadline.wait_for(self._connection):
                found = look(self.options.alias, self._claiming.look_from)
            cost = time.monotonic() - started
            if not self.options.burst:
                found = found._replace(work=self.unknown.skip(found.work))
            self._claiming.looked(found, cost)
            self._drained = self._claiming.looked_everywhere and not self._claiming.more
        room_bytes = max(0, MOST_BYTES - self.waiting.payload_bytes)
        if not room_bytes:
            ahead = 0
        held = self.held_leases.held_by_queue() if self.options.queues.caps else {}
        wish = self._claiming.wish(free, ahead, held, settles=settles or self.options.burst, payload_bytes=room_bytes)
        if wish is not None:
            wish.unknown = self.unknown.names()
        return wish

    def _exchange(self, offered: Sequence[Attempt], wish: ClaimRequest | None) -> None:
        asked_at, safe_from = time.monotonic(), elapsed()
        lease = conf.current().lease
        self._asked = wish is not None
        offers = [offer_of(attempt) for attempt in offered]
        try:
            with self.statement_deadline.wait_for(self._connection):
                got = exchange(self.options.alias, self.worker, lease, offers, wish or ClaimRequest())
        except DatabaseTrouble:
            for attempt, offer in zip(offered, offers, strict=True):
                attempt.progress = attempt.progress or offer.progress  # it goes with the next one
            raise
        self._asked = False
        for claimed in got.leases:
            self._take(claimed, asked_at, safe_from + lease)
        if wish is not None:
            self._claiming.claimed(wish, got)
            if wish.unknown:
                for place in self.unknown.claimed(wish, got, time.monotonic() - asked_at):
                    self._claiming.skip_to(*place)
                # A burst is over when all that is due is for others.
                everywhere = self._claiming.looked_everywhere and not wish.light
                everywhere = everywhere and len(wish.pairs) == len(self._claiming.sinces)
                self._drained = self._drained or (everywhere and not got.candidates)
            # What rivals hold locked is work too.
            self.prefetch.claimed(len(got.leases) >= wish.free + wish.ahead or bool(got.full(wish)))
        if offered:
            with self.statement_deadline.wait_for(self._connection):
                self.held_leases.account(offered, got.settled)
            self._claiming.freed()
            self._expect_again(offered)
            self._wake_others(offered)
            if self.recycle_after is not None and self.held_leases.begun >= self.recycle_after:
                self._tell("worn out")
        self._show_saturation()

    def _expect_again(self, offered: Sequence[Attempt]) -> None:
        """What was put back may be due before the next look."""
        for attempt in offered:
            if (
                attempt.outcome is not None
                and attempt.outcome.status in CLAIMABLE
                and not attempt.outcome.is_unknown_job
            ):
                self._drained = False
                self._claiming.look_soon(attempt.outcome.delay or 0.0)

    def _wake_others(self, offered: Sequence[Attempt]) -> None:
        """What is handed back is news for whoever has a free slot."""
        unrun = (outcome.RELEASED, outcome.UNBEGUN)
        leases = [one.lease for one in offered if one.outcome in unrun and one.key not in self.held_leases.held]
        payloads = {notify.work_payload(lease.queue, lease.priority) for lease in leases}
        if payloads:
            with self.statement_deadline.wait_for(self._connection):
                notify.wake(self.options.alias, payloads)

    def _show_saturation(self) -> None:
        """Prefetching depends on what workers say of their free slots: say it, and ask again, when that is out of date."""
        stale = self.heartbeat.me.busy < self.pool.size or self.prefetch.free_elsewhere > 0
        if stale and self.pool.free <= 0 and time.monotonic() - self._shown_at > SHOW_EVERY:
            self._shown_at = time.monotonic()
            self.heartbeat.beat_soon()

    def _take(self, lease: Lease, asked_at: float, safe_until: float) -> None:
        attempt = Attempt(lease, safe_until)
        self.held_leases.hold(attempt)
        if not self.accepting:
            attempt.decide(outcome.UNBEGUN)
            self.held_leases.decided(attempt)
            return
        try:
            definition = registry.find(lease.name)
            self.waiting.add(attempt, asked_at)
            self.pool.submit(attempt, definition)
        except UnknownJob:
            attempt.decide(outcome.unknown_job(self.unknown.met(lease.name)))
            self.held_leases.decided(attempt)

    def _recover(self, error: DatabaseTrouble) -> None:
        """The connection or a statement failed. What was offered is still held, and is offered again."""
        self.heartbeat.contact.lost()
        self._trouble += 1
        if self._trouble == 1:
            self._trouble_since = time.monotonic()
        elif self.options.burst and time.monotonic() - self._trouble_since > BURST_WAITS:
            raise error
        log.database_trouble(self._trouble, error)
        now = time.monotonic()
        if self._asked:
            self._asked, self._in_doubt_until, self._release_at = False, now + conf.current().lease, now
        self._reset()
        time.sleep(retry_pause(self._trouble, TROUBLE_PAUSE[0], min(TROUBLE_PAUSE[1], conf.current().lease / 4)))
        self.shared.moved()
        try:
            self.heartbeat.beat(self._connection)
            with self.statement_deadline.wait_for(self._connection):
                self._connection.ensure_connection()  # with nothing to extend the beat has asked nothing
            if self._trouble > 1:
                self.held_leases.offer_one_by_one(self._offer_alone, self._reset)
        except DatabaseTrouble as still:
            logger.debug("still no database: %s", still)
            self._reset()

    def _offer_alone(self, offers: Sequence[Settlement]) -> set[LeaseKey]:
        with self.statement_deadline.wait_for(self._connection):
            return exchange(self.options.alias, self.worker, conf.current().lease, offers, ClaimRequest()).settled

    def _reset(self) -> None:
        self._connection.close()

    def _release_unheld(self) -> None:
        """After a claim whose answer was lost: hand back what the database says is ours and we do not hold.

        The server may commit that claim late, so this is repeated until its leases would have expired anyway.
        """
        now = time.monotonic()
        if now > self._in_doubt_until:
            self._in_doubt_until = 0.0
        elif now >= self._release_at:
            with self.statement_deadline.wait_for(self._connection):
                released = release_unheld(self.options.alias, self.worker, [key.token for key in self.held_leases.held])
            if released:
                logger.warning("handed back %d jobs of a claim whose answer was lost", len(released))
            self._release_at = now + 1.0
