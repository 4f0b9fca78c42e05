"""Keeps a lease while a function runs under it."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable

from django_reliable_jobs.errors import GuardUnavailable
from django_reliable_jobs.guards.guard import complaints
from django_reliable_jobs.guards.lease import GuardedRun
from django_reliable_jobs.values.elapsed import elapsed

logger = logging.getLogger("django_reliable_jobs.guards")


class Renewal:
    """Renews a lease every third of its ttl until `stop`; tells by `on_loss`, in its own thread, when it is lost.

    The thread knows the renewal only weakly: if whoever made it is gone without a `stop` (an exception from outside can
    hit any line), the lease is left to expire.
    """

    def __init__(self, guarded_run: GuardedRun, on_loss: Callable[[], None]) -> None:
        self._stopped = threading.Event()
        arguments = (weakref.ref(self), guarded_run, self._stopped, on_loss)
        threading.Thread(target=_keep, args=arguments, name="reliable-jobs-guard-renewal", daemon=True).start()

    def stop(self) -> None:
        """Does not wait: a renewal that is under way changes nothing after a release, or once the run is done."""
        self._stopped.set()


def _keep(
    renewal: weakref.ref[Renewal], guarded_run: GuardedRun, stopped: threading.Event, on_loss: Callable[[], None]
) -> None:
    ttl, lease, guard = guarded_run.terms.ttl, guarded_run.lease, guarded_run.terms.guard
    pause = ttl / 3
    while not stopped.wait(max(0.0, min(pause, guarded_run.safe_until - elapsed()))) and renewal() is not None:
        reason = ""
        if elapsed() >= guarded_run.safe_until:
            reason = f"it could not be renewed for {ttl:g} s"
        else:
            pause = min(ttl / 10, 1.0)  # if this fails
            try:
                if guarded_run.renew():
                    pause = ttl / 3
                else:
                    reason = "it has expired, or somebody else has it"
            except GuardUnavailable as error:
                complaints.add(guard, error)
            except Exception:
                logger.exception("guard %s: a renewal failed", guard.name)
        if reason and not stopped.is_set():
            lease.lost.set()
            logger.warning("guard %s: the lease with token %d is lost: %s", guard.name, lease.token, reason)
            on_loss()
            return
