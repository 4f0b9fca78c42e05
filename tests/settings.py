"""The test project's settings, with the app whose jobs the tests run.

TEST_OTHER_DATABASE     a second database, as the alias `other`
TEST_CONN_MAX_AGE       for `default`: seconds, or "none" for connections that are kept
"""

from testproject.postgres import django_database
from testproject.settings import *  # noqa: F403
from testproject.settings import DATABASES, INSTALLED_APPS, env

INSTALLED_APPS = [*INSTALLED_APPS, "tests.probes", "tests.guards.app"]

if url := env.str("TEST_OTHER_DATABASE", ""):
    DATABASES["other"] = django_database(url)

if age := env.str("TEST_CONN_MAX_AGE", ""):
    DATABASES["default"]["CONN_MAX_AGE"] = None if age == "none" else int(age)
