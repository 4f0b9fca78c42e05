"""What a worker holds while it runs a job: values only, so that an unfenced write cannot even be written down.

A `Lease` is read once, from the row that the claim returned, and has no `save()`. Everything that is later written
about the job names the pair (`job_id`, `token`). The token comes from one sequence and is never reset: the worker id
alone would not do, since a worker can claim its own lost job again, nor would the attempt number, which a snooze
lowers and an operator's retry resets.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple


class LeaseKey(NamedTuple):
    """The pair that fences a write."""

    job_id: int
    token: int


class Lease(NamedTuple):  # which takes a fifth of the time to make that a frozen dataclass takes
    """One claimed attempt. `args` and `kwargs` are the stored JSON texts; `timeout` is in seconds, None is no limit."""

    job_id: int
    token: int
    name: str
    queue: str
    priority: int
    args: str
    kwargs: str
    attempt: int
    max_attempts: int | None
    losses: int
    timeout: float | None
    idempotency_key: str | None
    scheduled_for: datetime | None
    run_at: datetime
    #: Seconds from the claim until the job expires unless it has begun; None: it does not, or an earlier attempt had begun.
    expires_in: float | None = None
    #: How often this job was handed back for the infrastructure's failures since its last success (protocol 30).
    infrastructure_failures: int = 0

    @property
    def key(self) -> LeaseKey:
        return LeaseKey(self.job_id, self.token)

    @property
    def log_fields(self) -> dict[str, Any]:
        """What log records about this attempt bear, as `extra`."""
        return {
            "job_id": self.job_id, "job_name": self.name, "job_queue": self.queue, "job_attempt": self.attempt,
        }  # fmt: skip

    @property
    def last_attempt(self) -> bool:
        return self.max_attempts is not None and self.attempt >= self.max_attempts
