"""What every room of the tests may use. A server is started when the first test asks for a database, not before."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import connection

from testproject.postgres import DATABASE, PROJECT_ROOT, EmbeddedPostgres, django_database, url_of

FAIL_ON_SKIP = bool(os.environ.get("FAIL_ON_SKIP"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """The server that the tests run on, where it is ours to restart."""
    if os.environ.get("DATABASE_URL"):
        pytest.skip("needs a server of its own: unset DATABASE_URL")
    with EmbeddedPostgres(fast=True, tcp=True) as server:
        yield server


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    request: pytest.FixtureRequest, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """pytest-django asks for this before it makes the test database."""
    if not os.environ.get("DATABASE_URL"):
        server: EmbeddedPostgres = request.getfixturevalue("postgres")
        found = django_database(server.create_database(DATABASE))
        settings.DATABASES["default"].update({name: found[name] for name in ("HOST", "PORT", "USER", "PASSWORD")})


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """The test database, for other processes: what the test writes is committed, so that they see it."""
    return url_of(connection.settings_dict)


@pytest.fixture
def subprocess_env(database_url: str) -> dict[str, str]:
    """The environment of a process that works on the test database, such as `manage.py jobworker`."""
    return {
        **os.environ,
        "DATABASE_URL": database_url,
        "PYTHONPATH": str(PROJECT_ROOT),
    }


def pytest_report_header() -> str:
    server = os.environ.get("DATABASE_URL") and "the one in DATABASE_URL"
    return f"PostgreSQL: {server or os.environ.get('TEST_POSTGRES_BIN') or 'the wheel'}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if FAIL_ON_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and FAIL_ON_SKIP is set: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    if FAIL_ON_SKIP and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, and FAIL_ON_SKIP is set: {report.longrepr}"
    return report
