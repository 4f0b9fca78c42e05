"""A store on Redis or Valkey, for those who have one and want to keep their timers off the database.

    RELIABLE_JOBS = {
        "GUARDS": {
            "STORE": "django_reliable_jobs.guards.redis.RedisStore",
            "OPTIONS": {"url": "redis://cache:6379/0"},
        },
    }

A key is a hash with its own expiry, changed by scripts only, each one atomic and by the server's clock. Tokens come from
the database's sequence, so that they can be compared with those of jobs, and so that a Redis that has been emptied
cannot bring old numbers back; the key's last token outlives the claim, and no acquire with a smaller one is granted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from django_reliable_jobs import conf
from django_reliable_jobs.errors import GuardUnavailable
from django_reliable_jobs.guards.database import reachable
from django_reliable_jobs.store.tokens import fencing_tokens

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError as error:
    raise ImportError("RedisStore needs a client: pip install 'django-reliable-jobs[redis]'") from error

#: Tokens that were drawn before a rival's, by a process that was then asleep, are drawn again this often.
MAX_ROUNDS = 100
#: Milliseconds for which a key's last token is remembered after its claim has ended.
REMEMBER = 3_600_000


class RedisStore:
    """Claims do not join a transaction: a rollback does not free them.

    `url` is as in `redis.Redis.from_url`, and so are the `options` (`password`, `ssl_ca_certs`, …). `prefix` stands
    before every key.
    """

    in_database = False

    def __init__(
        self, url: str = "redis://localhost:6379/0", prefix: str = "django_reliable_jobs:guard:", **options: Any
    ) -> None:
        self._prefix = prefix
        timeout = conf.current().guards["TIMEOUT"]
        # One more try for a pooled connection that the server has closed. An acquire may be repeated: it has an owner.
        defaults = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": Retry(NoBackoff(), 1)}
        self._client = redis.Redis.from_url(url, **(defaults | options))
        folder = files("django_reliable_jobs.guards").joinpath("lua")
        self._scripts = {
            name: self._client.register_script(folder.joinpath(f"{name}.lua").read_text(encoding="utf-8"))
            for name in ("acquire", "renew", "release")
        }

    def acquire(self, alias: str, key: str, owner: str, ttl: float | None, until: float | None = None) -> int | None:
        end = [_milliseconds(ttl), _milliseconds(until), REMEMBER]
        # Without a token it only says whether there is anything to get: whoever is refused costs the database nothing.
        answer = self._run("acquire", key, owner, "", *end)
        for _ in range(MAX_ROUNDS):
            if answer == "taken":
                return None
            with reachable(alias):
                token = fencing_tokens(alias)[0]
            answer = self._run("acquire", key, owner, token, *end)
            if answer == "granted":
                return token
        raise GuardUnavailable(f"the guard key {key!r} was taken with a newer token {MAX_ROUNDS} times in a row")

    def renew(
        self, alias: str, key: str, token: int, ttl: float | None, until: float | None = None, *, done: bool = False
    ) -> bool:
        end = [_milliseconds(ttl), _milliseconds(until), REMEMBER]
        return self._run("renew", key, token, int(done), *end) == "renewed"

    def release(self, alias: str, key: str, token: int) -> bool:
        return self._run("release", key, token, REMEMBER) == "released"

    def now(self, alias: str) -> float:
        with _reachable():
            seconds, microseconds = self._client.time()
        return float(seconds + microseconds / 1e6)

    def _run(self, script: str, key: str, *arguments: Any) -> str:
        with _reachable():
            answer: bytes = self._scripts[script](keys=[self._prefix + key], args=arguments)
        return answer.decode() if isinstance(answer, bytes) else answer


@contextmanager
def _reachable() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise GuardUnavailable(f"Redis is out of reach for guards: {error}") from error


def _milliseconds(seconds: float | None) -> int | str:
    return "" if seconds is None else round(seconds * 1000)
