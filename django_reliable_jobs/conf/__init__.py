"""`settings.RELIABLE_JOBS`: the settings in force, and their keys."""

from django_reliable_jobs.conf.keys import Problem
from django_reliable_jobs.conf.settings import Settings, current, problems

__all__ = ["Problem", "Settings", "current", "problems"]
