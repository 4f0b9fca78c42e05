"""Exit statuses of `jobworker`; documented in `docs/reference/jobworker.md`."""

#: Stopped as asked, or a burst in which nothing failed.
OK = 0
#: A burst in which at least one attempt failed.
FAILURES = 1
#: The worker broke (its engine failed); a supervisor starts another.
BROKEN = 3
#: Internal: the process wants to be replaced by a fresh one. Without a supervisor it is what the command ends with.
RECYCLE = 4
#: Internal: a part of the process stood still, and it ended itself.
STUCK = 5
#: Internal: the same, and in its part of a burst at least one attempt failed.
RECYCLE_AFTER_FAILURES = 6
#: Internal: a burst has waited long enough for the database or its tables.
NOT_READY = 7
#: Internal: what a worker process adds when it ends by itself, so that a handler's `os._exit(0)` is not taken for it.
ORDERLY = 64

#: Statuses with which a worker process ends in order.
AS_MEANT = frozenset({OK, FAILURES, RECYCLE, RECYCLE_AFTER_FAILURES, NOT_READY})
#: Of a limited task (a burst, `--max-jobs`): something failed in it; there is more to do.
WITH_FAILURES = frozenset({FAILURES, RECYCLE_AFTER_FAILURES})
WANT_ANOTHER = frozenset({RECYCLE, RECYCLE_AFTER_FAILURES})
