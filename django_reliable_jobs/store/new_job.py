"""What is enqueued, as a value: what all calls of one enqueue share, and each call."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(slots=True)
class NewJob:
    """What all calls of one enqueue share. `delay` and `expires_in` are in seconds."""

    name: str
    queue: str
    priority: int
    run_at: datetime | None
    delay: float
    expires_at: datetime | None
    expires_in: float | None
    max_attempts: int | None
    timeout: float | None
    unique_until_start: bool
    scope: str
    #: All names that the job has, or had: rows with any of them are its own.
    names: tuple[str, ...]
    scheduled_for: datetime | None = None

    def params(self) -> dict[str, Any]:
        return {field: getattr(self, field) for field in self.__slots__}


@dataclass(slots=True)
class Call:
    """One call: the encoded arguments and its keys."""

    args: str
    kwargs: str
    unique_key: str | None = None
    idempotency_key: str | None = None
