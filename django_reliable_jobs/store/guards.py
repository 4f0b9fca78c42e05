"""Guard keys in the database: claim, renew, release, each one statement by the database's clock (protocol 14).

What can interleave: a claim meets a rival that has not committed. It waits; then it claims what the rival's rollback left
free, or it is refused by a row that its own statement could not see, and asks again to say so for certain.

A claim ends `ttl` seconds from now, or at the moment `until` (seconds since 1970 by the database's clock) if that is
given, or never if both are None.
"""

from __future__ import annotations

from django_reliable_jobs.errors import ReliableJobsError
from django_reliable_jobs.store.statements import change, run

# A rival must come and go again during each statement for a further round to be needed.
MAX_ROUNDS = 100
#: Seconds after which an expired claim may go. Nobody needs its token any more: who drew a smaller one is long gone.
PRUNE_AGE = 86_400.0


def acquire(alias: str, key: str, owner: str, ttl: float | None, until: float | None = None) -> int | None:
    """The token of the claim, in the caller's transaction; None if the key is taken, or `until` has passed.

    `owner` is one call's: the same one may ask again after a lost answer.
    """
    params = {"key": key, "owner": owner, "ttl": ttl, "until": until}
    for _ in range(MAX_ROUNDS):
        token, certain = run(alias, "guards/acquire", params)[0]
        if certain:
            return token  # type: ignore[no-any-return]
    raise ReliableJobsError(f"the guard key {key!r} changed hands {MAX_ROUNDS} times while it was claimed; try again.")


def renew(
    alias: str, key: str, token: int, ttl: float | None, until: float | None = None, *, done: bool = False
) -> bool:
    """Give a lease a new end. False: it has expired, or is another's. `done`: nobody renews or releases it any more."""
    params = {"key": key, "token": token, "ttl": ttl, "until": until, "done": done}
    return change(alias, "guards/renew", params) == 1


def release(alias: str, key: str, token: int) -> bool:
    """Free the key. False: it has expired, or is another's."""
    return change(alias, "guards/release", {"key": key, "token": token}) == 1


def now(alias: str) -> float:
    """Seconds since 1970 by the database's clock."""
    return float(run(alias, "guards/now", {})[0][0])


def prune(alias: str, age: float, batch: int) -> int:
    """Delete up to `batch` claims that expired more than `age` seconds ago; how many."""
    return change(alias, "guards/prune", {"age": age, "batch": batch})
