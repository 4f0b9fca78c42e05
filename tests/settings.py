"""The test project's settings, with the app whose jobs the tests run.

TEST_OTHER_DATABASE     a second database, as the alias `other`; TEST_OTHER_ENGINE its engine
TEST_AUTOCOMMIT         "no": AUTOCOMMIT is False
TEST_CONN_MAX_AGE       for `default`: seconds, or "none" for connections that are kept
"""

from testproject.postgres import django_database
from testproject.settings import *  # noqa: F403
from testproject.settings import DATABASES, INSTALLED_APPS, env

INSTALLED_APPS = [*INSTALLED_APPS, "tests.support.probes", "tests.support.guards.app"]

if url := env.str("TEST_OTHER_DATABASE", ""):
    DATABASES["other"] = django_database(url)
    if engine := env.str("TEST_OTHER_ENGINE", ""):
        DATABASES["other"]["ENGINE"] = engine

if age := env.str("TEST_CONN_MAX_AGE", ""):
    DATABASES["default"]["CONN_MAX_AGE"] = None if age == "none" else int(age)

if env.str("TEST_AUTOCOMMIT", "") == "no":
    DATABASES["default"]["AUTOCOMMIT"] = False
    SILENCED_SYSTEM_CHECKS = ["reliable_jobs.E009"]
