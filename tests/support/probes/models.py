"""What the probes leave behind, for the tests to look at."""

from __future__ import annotations

from django.db import models


class Mark(models.Model):
    """One row for each time that a handler says something."""

    label = models.CharField(max_length=200)
    job_id = models.BigIntegerField(default=0)
    token = models.BigIntegerField(default=0)
    attempt = models.IntegerField(default=0)
    pid = models.IntegerField(default=0)
    at = models.DateTimeField(auto_now_add=True)


class Parent(models.Model):
    """For constraints that are checked at commit."""


class Child(models.Model):
    parent = models.ForeignKey(Parent, on_delete=models.CASCADE)
