"""Django's settings for the runs: what most projects have installed, and the variant's `RELIABLE_JOBS`."""

from __future__ import annotations

from typing import Any

from benchmarks.contenders.base import database, options

SECRET_KEY = "no secret: for the benchmarks only"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django_reliable_jobs",
    "benchmarks",
]
_where = database()
DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _where["dbname"],
        "USER": _where["user"],
        "HOST": _where["host"],
        "PORT": _where["port"],
    }
}
RELIABLE_JOBS: dict[str, Any] = options().get("RELIABLE_JOBS", {})
LOGGING = {"version": 1, "disable_existing_loggers": False, "root": {"handlers": [], "level": "WARNING"}}
