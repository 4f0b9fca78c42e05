import os

from django.apps import AppConfig

from django_reliable_jobs.definitions import schedule as schedule_definitions


class ProbesConfig(AppConfig):
    name = "tests.support.probes"
    label = "probes"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """The shop's schedules do not fire in the middle of other tests: those that want schedules make their own."""
        schedule_definitions._by_name.clear()
        if os.environ.get("PROBES_HOLD_AHEAD"):
            hold_ahead_for_long()


def hold_ahead_for_long() -> None:
    """In this process jobs are claimed ahead, and held, for as long as a test needs; otherwise a second at most."""
    from django_reliable_jobs.worker.leases import engine, waiting

    waiting.HOLD = engine.STALLED = 3600.0
