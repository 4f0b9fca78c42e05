from django.apps import AppConfig

from django_reliable_jobs import scheduling


class ProbesConfig(AppConfig):
    name = "tests.probes"
    label = "probes"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """The shop's schedules do not fire in the middle of other tests: those that want schedules make their own."""
        scheduling._by_name.clear()
