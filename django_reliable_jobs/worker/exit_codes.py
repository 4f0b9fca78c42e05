"""Exit statuses of `jobworker`; documented in `docs/reference/jobworker.md`."""

#: Stopped as asked, or a burst in which nothing failed.
OK = 0
#: A burst in which at least one attempt failed.
FAILURES = 1
#: The worker broke (its engine failed); a supervisor starts another.
BROKEN = 3
#: Internal: the process wants to be replaced by a fresh one.
RECYCLE = 4
#: Internal: a part of the process stood still, and it ended itself.
STUCK = 5
#: Internal: what a worker process adds when it ends by itself, so that a handler's `os._exit(0)` is not taken for it.
ORDERLY = 64
