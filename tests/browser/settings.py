"""The site that the browser looks at, and its worker."""

import socket

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS, MIDDLEWARE

INSTALLED_APPS = [*INSTALLED_APPS, "tests.browser.app"]
MIDDLEWARE = [
    "tests.browser.csp.StrictPolicy",
    *MIDDLEWARE[:2],
    "django.middleware.locale.LocaleMiddleware",
    *MIDDLEWARE[2:],
]
LANGUAGE_CODE = "en"

# The pages show it, and so do the pictures in the documentation.
socket.gethostname = lambda: "web-1"
