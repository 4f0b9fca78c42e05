"""Settings of the processes that these tests start: few apps, so that they start fast.

DATABASE_URL, MIGRATE_DATABASE_URL, RELIABLE_JOBS_JSON   as in the test project
LOCAL_FILE      a SQLite database, as the alias `local`, for the app `depot` only
LOCAL_MARIADB   the same on MariaDB: its socket, a colon, and the database
LOCAL_ALL       the alias `local` is for all apps, as in a project without a router
MORE_APPS       apps to go before the others, separated by commas
"""

from __future__ import annotations

import os
from typing import Any

import environ

from testproject.postgres import django_database

env = environ.Env()

SECRET_KEY = "no secret"
DATABASES: dict[str, dict[str, Any]] = {"default": django_database(env.str("DATABASE_URL"))}
RELIABLE_JOBS: dict[str, Any] = {}
if url := env.str("MIGRATE_DATABASE_URL", ""):
    DATABASES["straight"] = django_database(url) | {"TEST": {"MIRROR": "default"}}
    RELIABLE_JOBS["MIGRATE"] = {"DATABASE": "straight"}
RELIABLE_JOBS |= env.json("RELIABLE_JOBS_JSON", {})
if path := env.str("LOCAL_FILE", ""):
    DATABASES["local"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": {"timeout": 60}}
if where := env.str("LOCAL_MARIADB", ""):
    import pymysql

    pymysql.install_as_MySQLdb()
    unix_socket, _, name = where.rpartition(":")
    DATABASES["local"] = {
        "ENGINE": "django.db.backends.mysql", "NAME": name, "USER": "root", "OPTIONS": {"unix_socket": unix_socket},
    }  # fmt: skip
if "local" in DATABASES and not env.bool("LOCAL_ALL", False):
    DATABASE_ROUTERS = ["tests.support.migrate.settings.OnlyDepotIsLocal"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    *filter(None, os.environ.get("MORE_APPS", "").split(",")),
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_reliable_jobs",
    "tests.support.migrate.depot",
]
USE_TZ = True


class OnlyDepotIsLocal:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return app_label == "depot" if db == "local" else None
