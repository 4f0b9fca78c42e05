from django.apps import AppConfig


class WorkloadConfig(AppConfig):
    name = "tests.chaos.workload"
    label = "workload"
    default_auto_field = "django.db.models.BigAutoField"
