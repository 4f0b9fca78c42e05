"""Settings of the test project. What a run is to change comes from the environment:

DATABASE_URL            where the jobs lie. Without it `manage.py`, the tests and the demo start a server of
                        their own (see `postgres/`); importing this module never starts one
LISTEN_DATABASE_URL     a direct way to the same database, as the alias `listen`, where DATABASE_URL leads to a pooler
MIGRATE_DATABASE_URL    the same, as the alias `migrate`
DATABASE_OPTIONS        JSON: more OPTIONS for `default`, such as {"pool": true}
RELIABLE_JOBS_JSON      JSON: what to change in RELIABLE_JOBS
TEST_USE_TZ, TEST_TIME_ZONE, DEBUG, LOG_LEVEL
"""

from pathlib import Path
from typing import Any

import environ

from testproject.postgres import DATABASE, database_url, django_database

env = environ.Env()
BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = env.str("SECRET_KEY", "no secret: for the tests and the demo only")
DEBUG = env.bool("DEBUG", False)
ALLOWED_HOSTS = ["*"]

# The host of the last resort makes the error message say what is missing.
NOWHERE = database_url(DATABASE, host="/DATABASE_URL is not set")
DATABASES: dict[str, dict[str, Any]] = {"default": django_database(env.str("DATABASE_URL", "") or NOWHERE)}
DATABASES["default"]["OPTIONS"] |= env.json("DATABASE_OPTIONS", {})
for alias in ("listen", "migrate"):
    if url := env.str(f"{alias.upper()}_DATABASE_URL", ""):
        DATABASES[alias] = django_database(url) | {"TEST": {"MIRROR": "default"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_reliable_jobs",
]
if (BASE_DIR / "testproject" / "shop" / "__init__.py").exists():
    INSTALLED_APPS.append("testproject.shop")

RELIABLE_JOBS: dict[str, Any] = {}
if "listen" in DATABASES:
    RELIABLE_JOBS["LISTEN_DATABASE"] = "listen"
if "migrate" in DATABASES:
    RELIABLE_JOBS["MIGRATE"] = {"DATABASE": "migrate"}
RELIABLE_JOBS |= env.json("RELIABLE_JOBS_JSON", {})

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "testproject.urls"
WSGI_APPLICATION = "testproject.wsgi.application"
ASGI_APPLICATION = "testproject.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
STATIC_URL = "static/"

USE_I18N = True
USE_TZ = env.bool("TEST_USE_TZ", True)
TIME_ZONE = env.str("TEST_TIME_ZONE", "UTC")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {"format": "{asctime} [{process}] {levelname} {name}: {message}", "style": "{"},
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "plain"},
    },
    "root": {"handlers": ["stderr"], "level": env.str("LOG_LEVEL", "INFO")},
}
