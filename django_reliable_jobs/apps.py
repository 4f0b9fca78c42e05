"""The app: its checks, and the jobs of every installed app."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ReliableJobsConfig(AppConfig):
    """Registers the system checks and imports each app's `jobs.py`."""

    name = "django_reliable_jobs"
    verbose_name = _("Reliable jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Importing them registers what they bring.
        from django_reliable_jobs import enqueue  # noqa: F401
        from django_reliable_jobs.checks import deployment as checks  # noqa: F401
        from django_reliable_jobs.checks import migrate as migrate_checks  # noqa: F401
        from django_reliable_jobs.checks import schedules as schedule_checks  # noqa: F401
        from django_reliable_jobs.checks import tokens as token_checks  # noqa: F401
        from django_reliable_jobs.definitions import registry

        registry.autodiscover()
