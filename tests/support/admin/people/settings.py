"""A project with a user model of its own, and what the environment says of language and keys."""

import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.support.admin.people"]
AUTH_USER_MODEL = "people.Person"
LANGUAGE_CODE = os.environ.get("TEST_LANGUAGE", "en-us")
DEFAULT_AUTO_FIELD = os.environ.get("TEST_AUTO_FIELD", "django.db.models.BigAutoField")
