"""The same in django-unfold's clothes."""

from tests.sites.settings import *  # noqa: F403
from tests.sites.settings import INSTALLED_APPS

INSTALLED_APPS = ["unfold", *INSTALLED_APPS]
