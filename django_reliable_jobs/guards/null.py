"""A store for local development."""

from __future__ import annotations

import time

from django_reliable_jobs.store.tokens import fencing_tokens


class NullStore:
    """Grants everything to everybody, so that a timer can be tried out again and again. Remembers nothing.

    Tokens are real ones, so that fences work here as they do elsewhere.
    """

    in_database = True

    def acquire(self, alias: str, key: str, owner: str, ttl: float | None, until: float | None = None) -> int | None:
        return fencing_tokens(alias)[0]

    def renew(
        self, alias: str, key: str, token: int, ttl: float | None, until: float | None = None, *, done: bool = False
    ) -> bool:
        return True

    def release(self, alias: str, key: str, token: int) -> bool:
        return True

    def now(self, alias: str) -> float:
        return time.time()
