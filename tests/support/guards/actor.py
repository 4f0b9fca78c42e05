"""A process that uses guards, and does what its test tells it: one JSON line a command, JSON lines as answers.

CLOCK_OFFSET    seconds that this host's clock is wrong
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from datetime import datetime, tzinfo
from queue import SimpleQueue
from typing import Any

OFFSET = float(os.environ.get("CLOCK_OFFSET", "0"))


def set_the_clock() -> None:
    """Before anything else is imported, so that nobody has another clock."""
    import datetime as datetime_module

    real_time = time.time

    class WrongDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.fromtimestamp(real_time() + OFFSET, tz)

        @classmethod
        def utcnow(cls) -> Any:
            return datetime.utcfromtimestamp(real_time() + OFFSET)

    time.time = lambda: real_time() + OFFSET
    time.time_ns = lambda: int((real_time() + OFFSET) * 1e9)
    datetime_module.datetime = WrongDatetime  # type: ignore[misc]


commands: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
finish = threading.Event()


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def listen() -> None:
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "finish":
            finish.set()
        else:
            commands.put(command)
    commands.put(None)


def crowd(verb: str, keys: list[str], threads: int) -> None:
    """For each key, how many of so many threads at once get it."""
    from django.db import connections

    from django_reliable_jobs import guards

    calls: dict[str, Any] = {
        "claim_period": lambda key: guards.claim_period(key, 3_000_000_000 // 10),
        "claim_once": guards.claim_once,
        "run_once": lambda key: guards.run_once(key, None, lambda: 1),
        # Long enough for everybody else to have been refused: two one after the other would be right as well.
        "run_exclusive": lambda key: guards.run_exclusive(key, 30, time.sleep, 4),
    }
    wins = dict.fromkeys(keys, 0)
    errors: list[str] = []
    lock = threading.Lock()
    barrier = threading.Barrier(threads)

    def caller() -> None:
        for key in keys:
            barrier.wait(120)
            try:
                won = bool(calls[verb](key))
            except Exception as error:
                with lock:
                    errors.append(repr(error))
            else:
                with lock:
                    wins[key] += won
        connections.close_all()

    crew = [threading.Thread(target=caller) for _ in range(threads)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    say(wins=wins, errors=errors)


def hold(verb: str, key: str, ttl: float) -> None:
    """Hold the key until told to finish or until the lease is lost; then try to write with the old token."""
    from django_reliable_jobs import guards
    from django_reliable_jobs.errors import LeaseLost
    from tests.support.guards.app.writes import write

    def function() -> None:
        lease = guards.current_lease()
        assert lease is not None
        try:
            say(event="running", token=lease.token)
            while not finish.wait(0.01):
                pass
        except LeaseLost:
            say(event="told", lost=lease.lost.is_set())
            raise
        finally:
            say(event="wrote", **write(lease.token))

    finish.clear()
    try:
        ran = (
            guards.run_exclusive(key, ttl, function)
            if verb == "run_exclusive"
            else guards.run_once(key, None, function)
        )
        say(event="ended", how="done" if ran else "not run")
    except LeaseLost as error:
        say(event="ended", how="LeaseLost", message=str(error))


def late(verb: str, key: str) -> None:
    """Stop between what is computed and what is sent, as a long pause does (G01)."""
    from django_reliable_jobs.guards import claim_once, claim_period
    from django_reliable_jobs.guards import guard as asking

    ask = asking.Guard.acquire

    def stalled(guard: asking.Guard, *args: Any, **kwargs: Any) -> Any:
        if not finish.is_set():
            say(event="before the claim")
            finish.wait(60)
        return ask(guard, *args, **kwargs)

    finish.clear()
    asking.Guard.acquire = stalled  # type: ignore[method-assign, assignment]
    try:
        say(got=claim_period(key, 1) if verb == "claim_period" else claim_once(key, ttl=1))
    finally:
        asking.Guard.acquire = ask  # type: ignore[method-assign]


def claim(verb: str, key: str, limit: float | None) -> None:
    from django_reliable_jobs import guards

    say(got=getattr(guards, verb)(key, limit), host_time=time.time())


def main() -> None:
    if OFFSET:
        set_the_clock()
    import django

    django.setup()
    threading.Thread(target=listen, daemon=True).start()
    say(event="ready", pid=os.getpid())
    acts = {"crowd": crowd, "hold": hold, "late": late, "claim": claim, "ping": lambda: say(event="pong")}
    while (command := commands.get()) is not None:
        acts[command.pop("do")](**command)


if __name__ == "__main__":
    main()
