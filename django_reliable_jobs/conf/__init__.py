"""`settings.RELIABLE_JOBS`: the settings in force, and their keys."""

from django_reliable_jobs.conf.keys import SettingProblem
from django_reliable_jobs.conf.settings import Settings, current, problems

__all__ = ["SettingProblem", "Settings", "current", "problems"]
