"""A URLconf with a second admin site beside the default one."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin.sites import AdminSite
from django.urls import path

from django_reliable_jobs.admin import register

site = AdminSite("ops")
register(site)
register(site)  # again: what is registered is left alone

urlpatterns = [path("admin/", admin.site.urls), path("ops/", site.urls)]
