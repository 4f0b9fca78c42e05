import os

from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate

from tests.support.migrate.depot import steps


class DepotConfig(AppConfig):
    name = "tests.support.migrate.depot"
    label = "depot"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        pre_migrate.connect(steps.begin, sender=self)
        post_migrate.connect(steps.end, sender=self)
        if os.environ.get("DEPOT_GUARD"):  # not the best place for it, but people will
            from django_reliable_jobs.guards import claim_period

            claim_period("start", 60)
