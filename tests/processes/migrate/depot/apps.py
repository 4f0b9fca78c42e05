from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate

from tests.processes.migrate.depot import steps


class DepotConfig(AppConfig):
    name = "tests.processes.migrate.depot"
    label = "depot"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        pre_migrate.connect(steps.begin, sender=self)
        post_migrate.connect(steps.end, sender=self)
