"""The stores and the ways to the database on which everything is tried."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from pytest_django import DjangoDbBlocker

from django_reliable_jobs.guards import guard as asking
from django_reliable_jobs.guards.store_threads import HELPER, StoreThreads
from django_reliable_jobs.models import Fence, GuardClaim, Job
from testproject.pgbouncer import PgBouncer
from testproject.postgres import PROJECT_ROOT, EmbeddedPostgres, url_of
from tests.processes.conftest import test_database
from tests.support.guards.actors import Troupe
from tests.support.guards.app.models import Entry, Hold, Sheet, Ticket
from tests.support.guards.valkey import Valkey
from tests.support.sessions import wait_until

__all__ = ["test_database"]

T = TypeVar("T")

REDIS = "django_reliable_jobs.guards.redis.RedisStore"
NULL = "django_reliable_jobs.guards.null.NullStore"

#: Changes GUARDS for the rest of the test.
Configure = Callable[..., None]


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    with Valkey() as server:
        yield server


@pytest.fixture
def valkey(valkey_server: Valkey) -> Valkey:
    """Running and empty."""
    valkey_server.restart_empty()
    return valkey_server


@pytest.fixture(scope="session")
def pgbouncer(postgres: EmbeddedPostgres) -> Iterator[PgBouncer]:
    with PgBouncer(postgres, pool_size=2) as pooler:
        yield pooler


@pytest.fixture(scope="session")
def no_helper_left(test_database: None) -> Iterator[None]:
    """A database cannot be dropped while somebody is connected; helpers are, until they have been idle for a while."""
    yield
    wait_until(lambda: not any(t.name == HELPER for t in threading.enumerate()), "the helpers end")


@pytest.fixture
def database(no_helper_left: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """What the test writes is committed. Only the tables of guards are emptied after it, which is quicker than all."""
    with django_db_blocker.unblock():
        yield
        for model in (GuardClaim, Fence, Hold, Ticket, Sheet, Entry, Job):
            model.objects.all().delete()
        connections.close_all()


@pytest.fixture(params=["direct", "pgbouncer"])
def way(request: pytest.FixtureRequest, database: None) -> Iterator[str]:
    """How the database is reached: straight, or through PgBouncer in transaction mode with two server connections."""
    address = connections.settings["default"]
    before = copy.copy(address)
    if request.param == "pgbouncer":
        pooler: PgBouncer = request.getfixturevalue("pgbouncer")
        assert pooler.home is not None
        address.update(HOST=str(pooler.home), PORT="6432")
    yield request.param
    connections.close_all()
    address.update(before)


@pytest.fixture
def configure(settings: Any) -> Configure:
    def change(**guards: Any) -> None:
        jobs = dict(getattr(settings, "RELIABLE_JOBS", {}))
        settings.RELIABLE_JOBS = jobs | {"GUARDS": jobs.get("GUARDS", {}) | guards}

    return change


@pytest.fixture(params=["database", "redis"])
def store(request: pytest.FixtureRequest, way: str, configure: Configure) -> str:
    """Each store, over each way. A busy machine is no reason for a store to be called unavailable."""
    configure(TIMEOUT=30)
    if request.param == "redis":
        configure(STORE=REDIS, OPTIONS={"url": request.getfixturevalue("valkey").url})
    return str(request.param)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it in a loop of its own, and close what `sync_to_async`'s thread has opened."""

    async def main() -> T:
        try:
            return await coroutine
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test may complain once, and no helper knows another test's way to the database."""
    monkeypatch.setattr(asking.complaints, "_last", float("-inf"))
    monkeypatch.setattr(asking, "_callers", StoreThreads(16))
    monkeypatch.setattr(asking, "_renewals", StoreThreads(4))


@pytest.fixture
def troupe(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> Iterator[Troupe]:
    """Real processes that use guards, on each store and over each way to the database."""
    env = {
        **os.environ,
        "DATABASE_URL": url_of(connections.settings["default"]),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": str(PROJECT_ROOT),
        "VALKEY_URL": request.getfixturevalue("valkey").url,
        "RELIABLE_JOBS_JSON": json.dumps({"LEASE": 2} | settings.RELIABLE_JOBS),
    }
    made = Troupe(env, tmp_path)
    yield made
    made.close()
