from django.apps import AppConfig


class GuardedConfig(AppConfig):
    name = "tests.support.guards.app"
    label = "guarded"
    default_auto_field = "django.db.models.BigAutoField"
