"""The site that the browser looks at, with a second admin site."""

from tests.browser.settings import *  # noqa: F403

ROOT_URLCONF = "tests.support.sites.urls"
