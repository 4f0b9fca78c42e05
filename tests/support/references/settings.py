"""A project whose tables refer to jobs."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.support.references"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
