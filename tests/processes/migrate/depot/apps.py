from django.apps import AppConfig


class DepotConfig(AppConfig):
    name = "tests.processes.migrate.depot"
    label = "depot"
    default_auto_field = "django.db.models.BigAutoField"
