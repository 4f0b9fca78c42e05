"""What a fork means for the project's own code: the new process has none of the threads that were running before."""

from __future__ import annotations

import logging
import threading

from django_reliable_jobs.signals import worker_process_started

logger = logging.getLogger("django_reliable_jobs.worker")


def warn_of_threads() -> None:
    """In the supervisor, before its first fork."""
    names = sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
    if names:
        logger.warning(
            "these threads run before the workers are forked, and will not run in them: %s. Start them in a receiver of"
            " django_reliable_jobs.signals.worker_process_started",
            ", ".join(names)[:500],
        )


def tell_the_project(*, isolated: bool) -> None:
    """In the new process."""
    for receiver, answer in worker_process_started.send_robust(sender=None, isolated=isolated):
        if isinstance(answer, Exception):
            logger.error("%r failed at the start of a worker process", receiver, exc_info=answer)
