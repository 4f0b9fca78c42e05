"""Django signals of this package."""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

#: Sent in each process that is going to run jobs, before its first one: threads that were started before the fork (a
#: QueueListener, an SDK, a pool) do not exist there and are to be started now. `isolated` (bool): the child process of
#: jobs with `isolation="process"`. No transaction is open. What a receiver raises is logged, and the process goes on.
worker_process_started: Final = Signal()
