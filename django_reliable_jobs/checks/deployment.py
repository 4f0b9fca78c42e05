"""System checks: what is wrong with a deployment and can be known without connecting to anything.

Importing this module registers them, under the tag `reliable_jobs`. Ids and remedies: `docs/reference/checks.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router

from django_reliable_jobs import conf

TAG = "reliable_jobs"

#: PostgreSQL runs READ UNCOMMITTED as READ COMMITTED. The numbers are psycopg's `IsolationLevel`.
_GOOD_LEVELS = {1, 2}
_LEVEL_OPTION = re.compile(r"default_transaction_isolation\s*=\s*((?:\\.|[^\s\\])+)")


@register(TAG)
def check_settings(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """E001: a wrong value, an unknown key, or an option that this version does not act on."""
    found = conf.problems(getattr(django_settings, "RELIABLE_JOBS", {}))
    return [Error(problem.message, hint=problem.hint, id=f"{TAG}.E001") for problem in found]


@register(TAG)
def check_databases(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """E002, E003, W001: the aliases exist, and are PostgreSQL."""
    settings = _settings()
    if settings is None:
        return []
    found: list[CheckMessage] = []
    for key, alias in _aliases(settings):
        if alias not in connections.settings:
            found.append(
                Error(
                    f"{key} is {alias!r}, which is not in DATABASES.",
                    hint=f"The aliases are: {', '.join(connections.settings)}.",
                    id=f"{TAG}.E002",
                )
            )
        elif connections[alias].vendor != "postgresql":  # makes the wrapper; does not connect
            engine = connections[alias].settings_dict["ENGINE"]
            found.append(
                Error(
                    f"{key} is {alias!r}, whose engine is {engine}, not PostgreSQL.",
                    hint="Claims, leases and notifications need PostgreSQL; name an alias that uses it.",
                    id=f"{TAG}.E003",
                )
            )
    if settings.listen_database is not None and not settings.listen:
        found.append(
            CheckWarning(
                'RELIABLE_JOBS["LISTEN_DATABASE"] has no effect while LISTEN is False.',
                hint="Set LISTEN to True, or leave LISTEN_DATABASE out.",
                id=f"{TAG}.W001",
            )
        )
    return found


@register(TAG)
def check_isolation_level(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """E004: above READ COMMITTED, settling an atomic job fails after any heartbeat."""
    settings = _settings()
    if settings is None or settings.database not in connections.settings:
        return []
    level = _isolation_level(connections[settings.database].settings_dict["OPTIONS"])
    if level is None:
        return []
    return [
        Error(
            f"The database {settings.database!r} is set to the isolation level {level}; jobs need READ COMMITTED.",
            hint="Take the level out of its OPTIONS. docs/reference/checks.md says what to do if it is needed.",
            id=f"{TAG}.E004",
        )
    ]


@register(TAG)
def check_autocommit(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """E009: without autocommit nothing that web processes enqueue or claim is committed. Workers say it themselves."""
    settings = _settings()
    if settings is None or settings.database not in connections.settings:
        return []
    if connections[settings.database].settings_dict.get("AUTOCOMMIT", True):
        return []
    message = (
        f"The database {settings.database!r} has AUTOCOMMIT = False: what is enqueued outside of atomic() is lost."
    )
    hint = "Take AUTOCOMMIT out of DATABASES; open transactions with atomic(), or with ATOMIC_REQUESTS."
    return [Error(message, hint=hint, id=f"{TAG}.E009")]


@register(TAG)
def check_routers(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """E005, E006: no router keeps the app's tables away from DATABASE, or sends writes elsewhere."""
    settings = _settings()
    if settings is None or settings.database not in connections.settings:
        return []
    from django_reliable_jobs.models import Job

    found: list[CheckMessage] = []
    hint = f"Have DATABASE_ROUTERS answer {settings.database!r} (or None) for the app label {Job._meta.app_label!r}."
    if not router.allow_migrate_model(settings.database, Job):
        message = f"A router does not let the app's tables be made in {settings.database!r}, where the jobs are kept."
        found.append(Error(message, hint=hint, id=f"{TAG}.E005"))
    # A row from DATABASE: without a router's word on it, Django writes it where it came from.
    probe = Job()
    probe._state.db = settings.database
    alias = router.db_for_write(Job, instance=probe)
    if alias != settings.database:
        message = f"A router sends writes of the app's tables to {alias!r}; the jobs are kept in {settings.database!r}."
        found.append(Error(message, hint=hint, id=f"{TAG}.E006"))
    return found


@register(TAG)
def check_atomic_jobs(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """W002: an atomic job's transaction is on DATABASE; writes to models on another alias are not part of it."""
    settings = _settings()
    if settings is None:
        return []
    from django_reliable_jobs.definitions import registry
    from django_reliable_jobs.definitions.job import origin

    found: list[CheckMessage] = []
    for definition in registry.all_definitions():
        app = apps.get_containing_app_config(origin(definition.function).__module__) if definition.atomic else None
        models = app.get_models() if app is not None else ()
        elsewhere = [
            f"{model._meta.label} ({alias})"
            for model in models
            if not model._meta.proxy and (alias := router.db_for_write(model)) != settings.database
        ]
        if elsewhere:
            found.append(
                CheckWarning(
                    f"The job {definition.name!r} is atomic=True on {settings.database!r}, but models of its app are"
                    f" written elsewhere: {', '.join(elsewhere)}.",
                    hint="What it writes there is not in the job's transaction: it can happen twice, or without the"
                    " job. Keep the jobs in the models' database, or silence this if the job does not write them.",
                    obj=definition.name,
                    id=f"{TAG}.W002",
                )
            )
    return found


@register(TAG)
def check_guard_store(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """E007: the guards' store cannot be imported or made, or lacks what a store has to have. It is not connected to."""
    settings = _settings()
    if settings is None:
        return []
    from django_reliable_jobs.guards.protocol import make_store

    try:
        make_store(settings.guards["STORE"], settings.guards["OPTIONS"])
    except ImproperlyConfigured as error:
        hint = "docs/how-to/guards-and-fencing.md says which stores there are, and what one of your own needs."
        return [Error(str(error), hint=hint, id=f"{TAG}.E007")]
    return []


def _settings() -> conf.Settings | None:
    try:
        return conf.current()
    except ImproperlyConfigured:  # E001 says so
        return None


def _aliases(settings: conf.Settings) -> Iterator[tuple[str, str]]:
    yield 'RELIABLE_JOBS["DATABASE"]', settings.database
    if settings.listen and settings.listen_database is not None:
        yield 'RELIABLE_JOBS["LISTEN_DATABASE"]', settings.listen_database
    if settings.migrate["DATABASE"] is not None:
        yield 'RELIABLE_JOBS["MIGRATE"]["DATABASE"]', settings.migrate["DATABASE"]


def _isolation_level(options: dict[str, Any]) -> str | None:
    """Return the level that the connection's OPTIONS ask for, if it is one that jobs cannot work with."""
    level = options.get("isolation_level")
    if level is not None:  # Django sets it on the connection, whatever libpq's options say
        name = getattr(level, "name", level)
        return None if level in _GOOD_LEVELS else str(name).replace("_", " ")
    text = _LEVEL_OPTION.search(str(options.get("options") or ""))
    name = text[1].replace("\\", "").strip("'\"").upper() if text else "READ COMMITTED"
    return None if name in ("READ COMMITTED", "READ UNCOMMITTED") else name
