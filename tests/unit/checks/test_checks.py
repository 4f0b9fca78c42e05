"""No database: the checks look at settings, connection wrappers and routers, and connect to nothing."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import checks as django_checks
from django.db.utils import ConnectionHandler, ConnectionRouter
from psycopg import IsolationLevel

from django_reliable_jobs.checks import deployment as checks
from django_reliable_jobs.definitions import registry

POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": "jobs", "HOST": "nowhere.invalid"}
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}


@pytest.fixture(autouse=True)
def databases(monkeypatch: pytest.MonkeyPatch, settings: Any) -> dict[str, dict[str, Any]]:
    """DATABASES as the checks see it; a test adds to it before it runs one."""
    found: dict[str, dict[str, Any]] = {"default": {**POSTGRES}}
    settings.RELIABLE_JOBS = {}
    monkeypatch.setattr(checks, "connections", ConnectionHandler(found))
    return found


@pytest.fixture
def route(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a router in force, made of the given methods."""

    def install(**methods: Any) -> None:
        monkeypatch.setattr(checks, "router", ConnectionRouter([SimpleNamespace(**methods)]))

    install()
    return install


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands in for the registry."""

    def install(*definitions: Any) -> None:
        monkeypatch.setattr(registry, "all_definitions", lambda: list(definitions))

    return install


def definition(name: str = "auth.job", *, atomic: bool = True, module: str = "django.contrib.auth.jobs") -> Any:
    return SimpleNamespace(name=name, atomic=atomic, function=SimpleNamespace(__module__=module))


def found(*messages: django_checks.CheckMessage) -> list[tuple[str | None, str]]:
    for message in messages:
        assert message.hint, message
    return [(message.id, message.msg) for message in messages]


def ids(messages: list[django_checks.CheckMessage]) -> list[str | None]:
    return [found_id for found_id, _ in found(*messages)]


def test_the_checks_are_registered_and_find_nothing_in_the_test_project() -> None:
    assert checks.TAG in django_checks.registry.registry.tags_available()
    assert django_checks.run_checks(tags=[checks.TAG]) == []


def test_each_wrong_setting_is_an_error_with_its_hint(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"LEASE": 0, "HEARTBEATS": 5}
    messages = checks.check_settings()
    assert ids(messages) == ["reliable_jobs.E001", "reliable_jobs.E001"]
    assert any('RELIABLE_JOBS["LEASE"]' in message.msg for message in messages)
    assert any(message.hint == 'Did you mean "HEARTBEAT"?' for message in messages)


def test_the_other_checks_leave_wrong_settings_to_that_one(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"LEASE": 0}
    others = (checks.check_databases, checks.check_isolation_level, checks.check_routers, checks.check_atomic_jobs)
    assert [check() for check in others] == [[], [], [], []]


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ({"DATABASE": "jobs"}, 'RELIABLE_JOBS["DATABASE"]'),
        ({"LISTEN_DATABASE": "jobs"}, 'RELIABLE_JOBS["LISTEN_DATABASE"]'),
        ({"MIGRATE": {"DATABASE": "jobs"}}, 'RELIABLE_JOBS["MIGRATE"]["DATABASE"]'),
    ],
)
def test_an_alias_that_does_not_exist_is_an_error(settings: Any, raw: Any, key: str) -> None:
    settings.RELIABLE_JOBS = raw
    (missing,) = found(*checks.check_databases())
    assert missing == ("reliable_jobs.E002", f"{key} is 'jobs', which is not in DATABASES.")


@pytest.mark.parametrize("raw", [{"DATABASE": "jobs"}, {"LISTEN_DATABASE": "jobs"}, {"MIGRATE": {"DATABASE": "jobs"}}])
def test_another_engine_is_an_error(settings: Any, monkeypatch: pytest.MonkeyPatch, raw: Any) -> None:
    settings.RELIABLE_JOBS = raw
    monkeypatch.setattr(checks, "connections", ConnectionHandler({"default": {**POSTGRES}, "jobs": {**SQLITE}}))
    ((found_id, message),) = found(*checks.check_databases())
    assert found_id == "reliable_jobs.E003"
    assert "is 'jobs', whose engine is django.db.backends.sqlite3, not PostgreSQL." in message


def test_a_listen_database_that_nothing_uses_is_a_warning(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"LISTEN": False, "LISTEN_DATABASE": "elsewhere"}
    assert ids(checks.check_databases()) == ["reliable_jobs.W001"]


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({"isolation_level": IsolationLevel.REPEATABLE_READ}, "REPEATABLE READ"),
        ({"isolation_level": IsolationLevel.SERIALIZABLE}, "SERIALIZABLE"),
        ({"isolation_level": 4}, "4"),
        ({"options": "-c default_transaction_isolation=serializable"}, "SERIALIZABLE"),
        ({"options": r"-c statement_timeout=5s -cdefault_transaction_isolation=repeatable\ read"}, "REPEATABLE READ"),
    ],
)
def test_a_level_above_read_committed_is_an_error(databases: Any, options: Any, level: str) -> None:
    databases["default"]["OPTIONS"] = options
    ((found_id, message),) = found(*checks.check_isolation_level())
    assert found_id == "reliable_jobs.E004"
    assert f"'default' is set to the isolation level {level};" in message


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"isolation_level": IsolationLevel.READ_COMMITTED},
        {"isolation_level": 2},
        {"isolation_level": IsolationLevel.READ_UNCOMMITTED},  # PostgreSQL has no such level: it is READ COMMITTED
        {"options": r"-c default_transaction_isolation=read\ committed"},
        {"options": "-c statement_timeout=5s"},
        {"isolation_level": 2, "options": "-c default_transaction_isolation=serializable"},
        {"pool": True},
    ],
)
def test_read_committed_however_it_is_said_is_fine(databases: Any, options: Any) -> None:
    databases["default"]["OPTIONS"] = options
    assert checks.check_isolation_level() == []


def test_only_the_level_of_the_jobs_own_alias_matters(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = {**POSTGRES, "OPTIONS": {"isolation_level": IsolationLevel.SERIALIZABLE}}
    monkeypatch.setattr(checks, "connections", ConnectionHandler({"default": strict, "jobs": {**POSTGRES}}))
    settings.RELIABLE_JOBS = {"DATABASE": "jobs"}
    assert checks.check_isolation_level() == []
    settings.RELIABLE_JOBS = {}
    assert ids(checks.check_isolation_level()) == ["reliable_jobs.E004"]


@pytest.fixture
def jobs_elsewhere(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs have an alias of their own, `jobs`."""
    settings.RELIABLE_JOBS = {"DATABASE": "jobs"}
    monkeypatch.setattr(checks, "connections", ConnectionHandler({"default": {**POSTGRES}, "jobs": {**POSTGRES}}))


@pytest.mark.usefixtures("jobs_elsewhere")
def test_an_alias_of_its_own_needs_no_router(route: Any) -> None:
    assert checks.check_routers() == []


@pytest.mark.usefixtures("jobs_elsewhere")
def test_a_router_that_agrees_is_fine(route: Any) -> None:
    route(
        db_for_write=lambda model, **hints: "jobs" if model._meta.app_label == "django_reliable_jobs" else None,
        allow_migrate=lambda db, app_label, **hints: (db == "jobs") == (app_label == "django_reliable_jobs"),
    )
    assert checks.check_routers() == []


@pytest.mark.usefixtures("jobs_elsewhere")
def test_a_router_that_keeps_the_tables_away_is_an_error(route: Any) -> None:
    route(allow_migrate=lambda db, app_label, **hints: db == "default")
    ((found_id, message),) = found(*checks.check_routers())
    assert found_id == "reliable_jobs.E005"
    assert "does not let the app's tables be made in 'jobs'" in message


@pytest.mark.usefixtures("jobs_elsewhere")
def test_a_router_that_sends_writes_elsewhere_is_an_error(route: Any) -> None:
    route(db_for_write=lambda model, **hints: "default")
    ((found_id, message),) = found(*checks.check_routers())
    assert found_id == "reliable_jobs.E006"
    assert "sends writes of the app's tables to 'default'; the jobs are kept in 'jobs'" in message


def test_a_router_for_reads_from_a_replica_is_fine(route: Any) -> None:
    route(db_for_read=lambda model, **hints: "replica")
    assert checks.check_routers() == []


def test_an_atomic_job_is_warned_about_when_its_models_are_elsewhere(route: Any, define: Any) -> None:
    define(definition(), definition("auth.other", atomic=False), definition("plain", module="builtins"))
    assert checks.check_atomic_jobs() == []
    route(db_for_write=lambda model, **hints: "people" if model is User else None)
    (message,) = checks.check_atomic_jobs()
    ((found_id, text),) = found(message)
    assert found_id == "reliable_jobs.W002"
    assert "The job 'auth.job' is atomic=True on 'default'" in text
    assert "auth.User (people)" in text
    assert "auth.Group" not in text
    assert message.obj == "auth.job"


@pytest.mark.usefixtures("jobs_elsewhere")
def test_an_atomic_job_is_warned_about_when_the_jobs_are_elsewhere(route: Any, define: Any) -> None:
    define(definition())
    (message,) = checks.check_atomic_jobs()
    assert message.id == "reliable_jobs.W002"
    assert "auth.User (default)" in message.msg
    assert not message.is_serious()


def test_jobs_in_an_app_without_models_or_outside_any_app_are_fine(route: Any, define: Any) -> None:
    route(db_for_write=lambda model, **hints: "people")
    define(definition(module="django.contrib.messages.jobs"), definition(module="somewhere.else"))
    assert checks.check_atomic_jobs() == []


def test_every_id_is_documented() -> None:
    package = Path(checks.__file__).parents[1]
    pages = package.parent / "docs" / "reference" / "checks.md"
    sources = "".join(path.read_text() for path in (package / "checks").glob("*.py"))
    used = set(re.findall(r"\{TAG\}\.([EW]\d+)", sources))
    documented = set(re.findall(r"^### reliable_jobs\.([EW]\d+): ", pages.read_text(), re.MULTILINE))
    assert used == documented


@pytest.mark.parametrize(("autocommit", "ids"), [(True, []), (False, ["reliable_jobs.E009"])])
def test_without_autocommit_web_processes_commit_nothing(
    monkeypatch: pytest.MonkeyPatch, autocommit: bool, ids: list[str]
) -> None:
    """Case P08."""
    monkeypatch.setitem(checks.connections["default"].settings_dict, "AUTOCOMMIT", autocommit)
    assert [message.id for message in checks.check_autocommit()] == ids
