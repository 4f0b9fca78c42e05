"""The enqueue's INSERT is prepared on connections that go straight to PostgreSQL, and on no others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from django_reliable_jobs.models import Job
from django_reliable_jobs.store.prepared_insert import USED_TO
from testproject.pgbouncer import PgBouncer
from testproject.postgres import EmbeddedPostgres
from tests.support.probes.jobs import noop

pytestmark = pytest.mark.django_db(transaction=True)

ENOUGH = USED_TO + 3


def prepared() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [row[0] for row in cursor.fetchall()]


@pytest.fixture
def fresh() -> Iterator[None]:
    connection.close()
    yield
    connection.close()


@pytest.fixture
def pooled(postgres: EmbeddedPostgres, fresh: None) -> Iterator[BaseDatabaseWrapper]:
    """The default alias, reached through a transaction pooler with one server connection."""
    direct = connections["default"]
    with PgBouncer(postgres, pool_size=1) as pooler:
        through = direct.copy("default")
        through.settings_dict = {**direct.settings_dict, "HOST": str(pooler.home), "PORT": "6432"}
        connections["default"] = through
        yield through
        through.close()
        connections["default"] = direct


def test_a_connection_that_is_used_for_more_than_a_few_prepares_this_one_statement(fresh: None) -> None:
    for _ in range(USED_TO):
        noop.enqueue()
    assert prepared() == []
    for _ in range(ENOUGH):
        noop.enqueue()
    (statement,) = prepared()
    assert "INSERT INTO django_reliable_jobs_job" in statement
    assert connection.connection.prepare_threshold is None, "the project's own statements are as before"
    connection.close()
    noop.enqueue()
    assert prepared() == [], "a new connection has to show it anew"


def test_who_watches_the_statements_of_a_connection_sees_it_prepared_or_not(fresh: None) -> None:
    seen: list[str] = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        for _ in range(ENOUGH):
            noop.enqueue()
    assert prepared()
    assert sum("INSERT INTO django_reliable_jobs_job" in sql for sql in seen) == ENOUGH


def test_a_tool_that_patches_djangos_cursor_sees_it_prepared_or_not(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tracing tools do."""
    seen: list[str] = []
    real = CursorWrapper.execute

    def traced(self: CursorWrapper, sql: str, params: Any = None) -> Any:
        seen.append(sql)
        return real(self, sql, params)

    monkeypatch.setattr(CursorWrapper, "execute", traced)
    for _ in range(ENOUGH):
        noop.enqueue()
    assert sum("INSERT INTO django_reliable_jobs_job" in sql for sql in seen) == ENOUGH


def test_behind_a_transaction_pooler_nothing_is_prepared(pooled: BaseDatabaseWrapper) -> None:
    for _ in range(ENOUGH):
        noop.enqueue()
    assert prepared() == []
    assert Job.objects.count() == ENOUGH


def test_a_rollback_and_a_clash_leave_it_working(fresh: None) -> None:
    for _ in range(ENOUGH):
        with transaction.atomic():
            noop.enqueue()
            transaction.set_rollback(True)
        first = noop.using(unique_key="k").enqueue()
        assert noop.using(unique_key="k").enqueue() == first
    assert Job.objects.count() == 1


@pytest.mark.parametrize("statement", ["DISCARD ALL", "DEALLOCATE ALL"])
def test_whoever_takes_the_prepared_statement_away_costs_no_job(fresh: None, statement: str) -> None:
    for _ in range(ENOUGH):
        noop.enqueue()
    assert prepared()
    with connection.cursor() as cursor:
        cursor.execute(statement)
    for _ in range(ENOUGH):
        noop.enqueue()
    with transaction.atomic():
        noop.enqueue()
    assert prepared() == []
    assert Job.objects.count() == 2 * ENOUGH + 1


def test_a_connection_of_a_pool_prepares_nothing(fresh: None) -> None:
    direct = connections["default"]
    pooled = direct.copy("default")
    pooled.settings_dict = {
        **direct.settings_dict,
        "CONN_MAX_AGE": 0,
        "OPTIONS": {"pool": {"min_size": 1, "max_size": 1}},
    }
    connections["default"] = pooled
    try:
        for _ in range(ENOUGH):
            noop.enqueue()
        assert prepared() == []
    finally:
        pooled.close()
        pooled.close_pool()  # type: ignore[attr-defined]
        connections["default"] = direct


@pytest.mark.parametrize("use_tz", [True, False])
def test_the_job_is_what_the_row_says_before_and_after(fresh: None, settings: Any, use_tz: bool) -> None:
    settings.USE_TZ, settings.TIME_ZONE = use_tz, "Asia/Ho_Chi_Minh"
    connection.close()
    for number in range(ENOUGH):
        at = {} if use_tz else {"run_at": datetime(2030, 1, 1, 12, number)}
        delay = {"delay": 60.5} if number % 2 and use_tz else {}
        made = noop.using(expires=3600, priority=number * 10, max_attempts=number + 1, **at, **delay).enqueue()
        row = Job.objects.get(pk=made.pk)
        for field in ("run_at", "created_at", "expires_at", "priority", "max_attempts", "queue", "args", "status"):
            assert getattr(made, field) == getattr(row, field), field
        assert (made.created_at.tzinfo is not None) == use_tz
