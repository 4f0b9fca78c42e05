"""The network between `migrate` and its server is cut, or stands still (M04)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import psycopg
import pytest

from testproject.postgres import EmbeddedPostgres, database_url
from tests.chaos.proxy import Proxy
from tests.support.migrate.depot.steps import FIRST, LAST
from tests.support.migrate.runs import MIGRATIONS, Look, Migrators, wait_until

MakeMigrators = Callable[..., Migrators]


@pytest.fixture
def proxy(postgres: EmbeddedPostgres) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", postgres.port)) as made:
        yield made


@pytest.fixture
def behind(proxy: Proxy, postgres: EmbeddedPostgres, database: str) -> str:
    """The URL of the empty database through the proxy."""
    name = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    return database_url(name, host="127.0.0.1", port=proxy.port, password=postgres.password)


@pytest.mark.parametrize("where", [FIRST, 3, LAST], ids=["lock taken", "mid-migration", "before release"])
def test_a_network_that_is_cut_fails_the_holder_and_another_one_goes_on(
    migrators: MakeMigrators, behind: str, proxy: Proxy, look: Look, where: int
) -> None:
    holder_side, other_side = migrators(behind), migrators()
    with look.gate(where) as arrived:
        holder = holder_side.start()
        arrived()
        other = other_side.start()
        other.wait_for_err("Waiting for the migration lock")
        proxy.cut()
        assert holder.wait() == 1
        # The gate is still shut: the server has noticed that the holder is gone.
        wait_until(lambda: (found := look.holder()) is not None and found[0] == other.pid, "the other one's turn")
        if where == 3:
            assert look.migrations() == MIGRATIONS[:2]
    assert other.wait() == 0
    look.assert_migrated()
    assert look.advisory_locks() == []


def test_a_waiter_whose_network_is_cut_connects_again(
    migrators: MakeMigrators, behind: str, proxy: Proxy, look: Look
) -> None:
    with look.gate(3) as arrived:
        holder = migrators().start()
        arrived()
        waiter = migrators(behind).start()
        waiter.wait_for_err("Waiting for the migration lock")
        proxy.cut()
        count = proxy.accepted
        wait_until(lambda: proxy.accepted > count, "it to connect again")
    assert [holder.wait(), waiter.wait()] == [0, 0]
    look.assert_migrated()


@pytest.mark.parametrize("who", [pytest.param("holder", marks=pytest.mark.slow), "waiter"])
def test_sigterm_ends_a_run_whose_network_stands_still(
    migrators: MakeMigrators, behind: str, proxy: Proxy, look: Look, who: str
) -> None:
    """Nobody answers, and nobody says so: it ends all the same, and soon."""
    with look.gate(3) as arrived:
        first = migrators(behind if who == "holder" else look.url).start()
        arrived()
        second = migrators(behind if who == "waiter" else look.url).start()
        second.wait_for_err("Waiting for the migration lock")
        stuck, other = (first, second) if who == "holder" else (second, first)
        proxy.freeze()
        stuck.kill(signal.SIGTERM)
        assert stuck.wait() == 143
        proxy.cut()
    assert other.wait() == 0
    look.assert_migrated()
