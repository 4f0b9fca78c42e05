"""What handlers leave in the database."""

from __future__ import annotations

from django.db import models


class Effect(models.Model):
    """One row for each effect that a handler meant to have once. No constraint keeps a second one out."""

    tag = models.CharField(max_length=100)
    step = models.IntegerField(default=0)
    job_id = models.BigIntegerField()
    token = models.BigIntegerField()
    pid = models.IntegerField()
