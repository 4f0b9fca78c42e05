"""People with permissions, at the admin's pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

Staff = Callable[..., Client]


@pytest.fixture
def staff(db: None) -> Staff:
    """A client of somebody with these permissions of the app; CSRF is checked if asked for."""

    def make(*codenames: str, csrf: bool = False) -> Client:
        user = User.objects.create_user(f"staff{User.objects.count()}", is_staff=True)
        found = Permission.objects.filter(content_type__app_label="django_reliable_jobs", codename__in=codenames)
        assert found.count() == len(codenames)
        user.user_permissions.set(found)
        client = Client(enforce_csrf_checks=csrf)
        client.force_login(user)
        return client

    return make


@pytest.fixture
def root(db: None) -> Client:
    """A superuser's client."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def url(name: str, /, *args: Any, model: str = "job", **query: Any) -> str:
    """The address of a page of a model, such as `url("changelist", status="DEAD")`."""
    address = reverse(f"admin:django_reliable_jobs_{model}_{name}", args=args)
    return f"{address}?{urlencode(query)}" if query else address
