"""The same in django-unfold's clothes."""

from tests.support.sites.settings import *  # noqa: F403
from tests.support.sites.settings import INSTALLED_APPS

INSTALLED_APPS = ["unfold", *INSTALLED_APPS]
