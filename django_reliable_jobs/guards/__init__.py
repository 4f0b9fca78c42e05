"""Guards: keep a timer, a command, a CronJob or a request from doing the same thing twice, with or without the queue.

`claim_*` take a key and say whether they got it; `run_*` run a function under it. A key means something within one kind
of guard: `claim_period("report", …)` and `run_exclusive("report", …)` do not know of each other.
"""

from django_reliable_jobs.guards.claim_rows import aclaim_rows, claim_rows
from django_reliable_jobs.guards.claims import aclaim_once, aclaim_period, claim_once, claim_period
from django_reliable_jobs.guards.decorators import guarded
from django_reliable_jobs.guards.lease import GuardLease, current_lease
from django_reliable_jobs.guards.locks import advisory_xact_lock
from django_reliable_jobs.guards.runs import GuardResult, arun_exclusive, arun_once, run_exclusive, run_once

__all__ = [
    "GuardLease",
    "GuardResult",
    "aclaim_once",
    "aclaim_period",
    "aclaim_rows",
    "advisory_xact_lock",
    "arun_exclusive",
    "arun_once",
    "claim_once",
    "claim_period",
    "claim_rows",
    "current_lease",
    "guarded",
    "run_exclusive",
    "run_once",
]
