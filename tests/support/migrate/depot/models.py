"""An app whose migrations are what is difficult about migrating in every replica."""

from __future__ import annotations

from django.db import models


class Crate(models.Model):
    label = models.CharField(max_length=50)
    weight = models.IntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["weight"], name="depot_crate_weight")]


class Event(models.Model):
    """What a migration says that it has done, in its own transaction."""

    what = models.CharField(max_length=50)
    alias = models.CharField(max_length=50)
    direct = models.BooleanField(null=True)
