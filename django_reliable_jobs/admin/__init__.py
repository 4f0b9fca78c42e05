"""The operations pages in the Django admin: see what is wrong, and put it right.

Importing it registers them on the default site. For a site of your own call `register(site)`.
"""

from __future__ import annotations

from django.contrib import admin

# Each brings its admins, with `@manages(Model)`.
from django_reliable_jobs.admin import guards, queues, workers  # noqa: F401
from django_reliable_jobs.admin.base import register
from django_reliable_jobs.admin.jobs import changelist as jobs  # noqa: F401
from django_reliable_jobs.admin.overview import page as overview  # noqa: F401
from django_reliable_jobs.admin.schedules import changelist as schedules  # noqa: F401
from django_reliable_jobs.admin.schedules import runs as cron_runs  # noqa: F401

__all__ = ["register"]

register(admin.site)
