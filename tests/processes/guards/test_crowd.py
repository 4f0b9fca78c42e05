"""200 callers on one key at the same moment, over a network that is slow: one of them gets it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from testproject.pgbouncer import PgBouncer
from testproject.postgres import PROJECT_ROOT, EmbeddedPostgres, database_url
from tests.chaos.proxy import Proxy
from tests.support.guards.actors import Troupe
from tests.support.guards.fixtures import REDIS

PROCESSES = 4
THREADS = 50
LATENCY = 0.01  # seconds, each way
VERBS = {"claim_period": 8, "claim_once": 10, "run_once": 8}


@pytest.fixture(params=["database", "redis"])
def which(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["direct", "pgbouncer"])
def crowd(
    request: pytest.FixtureRequest, which: str, database: None, postgres: EmbeddedPostgres, tmp_path: Path
) -> Iterator[Troupe]:
    """On each store; and with the database straight behind the slow network, or behind PgBouncer with two connections."""
    name = connections["default"].settings_dict["NAME"]
    with ExitStack() as stack:
        guards: dict[str, Any] = {"TIMEOUT": 120}
        port = postgres.port
        if request.param == "pgbouncer":
            port = stack.enter_context(PgBouncer(postgres, pool_size=2, tcp=True)).port
        proxy = stack.enter_context(Proxy(("127.0.0.1", port)))
        url = database_url(name, host="127.0.0.1", port=proxy.port, password=postgres.password)
        if which == "redis":
            valkey = request.getfixturevalue("valkey")
            before = stack.enter_context(Proxy(("127.0.0.1", valkey.port)))
            before.latency = LATENCY
            guards |= {"STORE": REDIS, "OPTIONS": {"url": f"redis://127.0.0.1:{before.port}/0"}}
        proxy.latency = LATENCY
        troupe = Troupe(
            {
                **os.environ,
                "DATABASE_URL": url,
                "DJANGO_SETTINGS_MODULE": "tests.settings",
                "PYTHONPATH": str(PROJECT_ROOT),
                "RELIABLE_JOBS_JSON": json.dumps({"GUARDS": guards}),
            },
            tmp_path,
        )
        stack.callback(troupe.close)
        yield troupe


@pytest.mark.slow
def test_one_of_two_hundred_callers_gets_each_key(crowd: Troupe) -> None:
    actors = crowd.start(PROCESSES)
    for verb, rounds in VERBS.items():
        keys = [f"{verb} {number}" for number in range(rounds)]
        assert wins(actors, verb, keys) == dict.fromkeys(keys, 1)
    assert wins(actors, "run_exclusive", ["exclusive"]) == {"exclusive": 1}


def wins(actors: list[Any], verb: str, keys: list[str]) -> dict[str, int]:
    """For each key, how many callers of all processes got it."""
    for actor in actors:
        actor.tell("crowd", verb=verb, keys=keys, threads=THREADS)
    total = dict.fromkeys(keys, 0)
    for actor in actors:
        said = actor.hear()
        assert said["errors"] == []
        for key, won in said["wins"].items():
            total[key] += won
    return total
