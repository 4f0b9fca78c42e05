from django.apps import AppConfig


class BrowserConfig(AppConfig):
    """The jobs that the browser tests watch; their names begin with `browser.`."""

    name = "tests.browser.app"
    label = "browser"
