"""The operations pages in the Django admin: see what is wrong, and put it right.

Importing it registers them on the default site. For a site of your own call `register(site)`.
"""

from __future__ import annotations

from django.contrib import admin

# Each brings its admins, with `@manages(Model)`.
import django_reliable_jobs.admin.jobs.changelist
import django_reliable_jobs.admin.overview.page
import django_reliable_jobs.admin.schedules.changelist
import django_reliable_jobs.admin.schedules.runs  # noqa: F401
from django_reliable_jobs.admin import guards, queues, workers  # noqa: F401
from django_reliable_jobs.admin.base import register

__all__ = ["register"]

register(admin.site)
