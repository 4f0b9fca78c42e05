"""Schedules that only a test knows, and a database clock that it sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from django_reliable_jobs.definitions import schedule as schedule_definitions
from tests.processes.conftest import fleet  # noqa: F401 - a fixture
from tests.support.schedules.clock import SEARCH_PATH, DatabaseClock, utc
from tests.support.schedules.versions import monotonic  # noqa: F401 - a fixture
from tests.support.sessions import Session, impatient


@pytest.fixture(autouse=True)
def _no_schedules_in_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the installed apps are not a test's business; what it decorates is forgotten with it."""
    monkeypatch.setattr(schedule_definitions, "_by_name", {})


@pytest.fixture
def clock(db: None) -> Iterator[DatabaseClock]:
    """The database's clock stands still at noon of a Wednesday, until the test sets it."""
    made = DatabaseClock(utc("2026-07-01 12:00"))
    with connection.cursor() as cursor:
        cursor.execute(f"SET search_path = {SEARCH_PATH}")
    yield made
    with connection.cursor() as cursor:
        cursor.execute("RESET search_path")
    made.drop()


@pytest.fixture
def sessions(transactional_db: None) -> Iterator[Callable[[], Session]]:
    """More sessions than one, each with the shifted clock before the real one, where there is one."""
    made: list[Session] = []

    def make() -> Session:
        session = Session()
        made.append(session)
        session.do(impatient)
        session.sql(f"SET search_path = {SEARCH_PATH}")
        return session

    yield make
    for session in made:
        session.__exit__()


@pytest.fixture
def fast_clock(transactional_db: None) -> Iterator[DatabaseClock]:
    """For processes whose sessions have the search path: the real sessions of the test are left alone."""
    made = DatabaseClock(utc("2026-07-01 12:00"))
    yield made
    made.drop()
