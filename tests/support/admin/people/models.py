"""A project's own user: another key, another name for the login."""

from __future__ import annotations

from typing import ClassVar
from uuid import uuid4

from django.contrib.auth.models import AbstractBaseUser, PermissionsMixin
from django.db import models


class Person(AbstractBaseUser, PermissionsMixin):
    id = models.UUIDField(primary_key=True, default=uuid4)
    email = models.EmailField(unique=True)
    is_staff = models.BooleanField(default=True)

    USERNAME_FIELD: ClassVar[str] = "email"
    objects: ClassVar[models.Manager[Person]] = models.Manager()

    class Meta:
        app_label = "people"
