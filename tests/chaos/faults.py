"""The faults. Each notes in the timeline what it did, to whom, and for how long."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress

import psycopg

from tests.chaos.arena import Arena
from tests.chaos.fleet import Pod
from tests.chaos.nemesis import fault
from tests.chaos.proxy import Proxy
from tests.chaos.timeline import ORPHANS

#: PostgreSQL is one for all: two faults that stop it take turns.
server = threading.Lock()


def pick_pod(arena: Arena, dice: random.Random) -> Pod | None:
    """One that has a worker just now."""
    pods = [pod for pod in arena.fleet.running() if pod.workers()]
    return dice.choice(pods) if pods else None


@fault
def kill_worker(arena: Arena, dice: random.Random) -> None:
    """SIGKILL to a worker process; its supervisor lives."""
    if (pod := pick_pod(arena, dice)) and (workers := pod.workers()):
        pid = dice.choice(workers)
        with arena.timeline.incident("SIGKILL to a worker", str(pod), {pid}):
            arena.fleet.kill(pid)


@fault
def kill_pod(arena: Arena, dice: random.Random) -> None:
    """SIGKILL to a supervisor and all its children."""
    if pod := pick_pod(arena, dice):
        with arena.timeline.incident("SIGKILL to a pod", str(pod), pod.processes()):
            arena.fleet.kill_pod(pod)


@fault
def kill_supervisor(arena: Arena, dice: random.Random) -> None:
    """SIGKILL to a supervisor; its worker is alone and has to stop in order."""
    if pod := pick_pod(arena, dice):
        with arena.timeline.incident(ORPHANS, str(pod), pod.processes()):
            arena.fleet.kill(pod.pid)


@fault
def stop_worker(arena: Arena, dice: random.Random) -> None:
    """SIGSTOP to a worker process for longer than its lease, then SIGCONT."""
    if (pod := pick_pod(arena, dice)) and (workers := pod.workers()):
        stall(arena, dice.choice(workers), str(pod), arena.lease * dice.uniform(1.2, 2.2))


def stall(arena: Arena, pid: int, target: str, seconds: float) -> None:
    with arena.timeline.incident("SIGSTOP", target, {pid}), suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)


@fault
def terminate_backends(arena: Arena, dice: random.Random) -> None:
    """pg_terminate_backend on every connection to the database: workers', handlers' and producers'."""
    with server, arena.timeline.incident("pg_terminate_backend", "every connection") as one:
        with psycopg.connect(arena.server.url(), autocommit=True) as admin:
            found = admin.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s", (arena.database,)
            ).fetchone()
        one.target = f"{found[0] if found else 0} connections"


@fault
def restart_postgres(arena: Arena, dice: random.Random) -> None:
    """An orderly restart, or a crash with recovery."""
    mode = dice.choice(["fast", "immediate"])
    with server, arena.timeline.incident("PostgreSQL restart", mode):
        arena.server.restart("fast" if mode == "fast" else "immediate")


@fault
def outage(arena: Arena, dice: random.Random) -> None:
    """PostgreSQL is down for longer than a lease."""
    with server, arena.timeline.incident("PostgreSQL outage", "fast"), arena.server.outage("fast"):
        time.sleep(arena.lease * dice.uniform(1.1, 1.6))


def pick_proxy(arena: Arena, dice: random.Random) -> tuple[int, Proxy] | None:
    return dice.choice(sorted(arena.proxies.items())) if arena.proxies else None


@fault
def cut_connections(arena: Arena, dice: random.Random) -> None:
    """A reset to every connection of one pod."""
    if found := pick_proxy(arena, dice):
        number, proxy = found
        pod = arena.fleet.pods[number]
        with arena.timeline.incident("connections cut", str(pod), pod.processes()) as one:
            one.target = f"{pod}, {proxy.cut()} connections"


@fault
def freeze_connections(arena: Arena, dice: random.Random) -> None:
    """Nothing passes between one pod and the database, and nobody is told."""
    if found := pick_proxy(arena, dice):
        number, proxy = found
        pod = arena.fleet.pods[number]
        with arena.timeline.incident("connections frozen", str(pod)), proxy.frozen():
            time.sleep(arena.lease * dice.uniform(0.5, 2.0))


@fault
def slow_network(arena: Arena, dice: random.Random) -> None:
    """Every piece of data between one pod and the database takes a while."""
    if found := pick_proxy(arena, dice):
        number, proxy = found
        with arena.timeline.incident("slow network", f"pod {number}"):
            proxy.latency = dice.uniform(0.01, 0.05)
            time.sleep(dice.uniform(2, 5))
            proxy.latency = 0.0


@fault
def logging_storm(arena: Arena, dice: random.Random) -> None:
    """Handlers that log without a pause are stopped at their deadlines. No process is excused: it has to get over it."""
    with arena.timeline.incident("logging storm", "the next 16 jobs", set()):
        arena.produce(f"chatty-{dice.randrange(10**9)}", "chatty", 16)


@fault
def freeze_threads(arena: Arena, dice: random.Random) -> None:
    """A handler keeps a lock of the whole process, whose other threads stand still while its heartbeat could go on."""
    with arena.timeline.incident("threads frozen", "the next job", set()):
        arena.produce(f"freezing-{dice.randrange(10**9)}", "freezing", 1)
