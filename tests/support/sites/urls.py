"""A second admin site beside the default one, with a name of its own."""

from __future__ import annotations

from django.apps import apps
from django.contrib import admin
from django.urls import path

from django_reliable_jobs.admin import register

Site = admin.AdminSite
if apps.is_installed("unfold"):
    from unfold.sites import UnfoldAdminSite as Site  # its templates work on no other

operations = Site(name="operations")
register(operations)

urlpatterns = [
    path("operations/", operations.urls),
    path("admin/", admin.site.urls),
]
