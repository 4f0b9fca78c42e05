"""What the guarded and fenced code of the tests writes."""

from __future__ import annotations

from django.db import models

from django_reliable_jobs.fencing import FencedModel


class Entry(models.Model):
    """One row for each thing that was done; a thing that was done twice has two."""

    label = models.CharField(max_length=200)
    token = models.BigIntegerField(default=0)
    pid = models.IntegerField(default=0)


class Sheet(FencedModel):
    """A row whose writers have to be the newest owner."""

    name = models.CharField(max_length=50, unique=True)
    text = models.CharField(max_length=200, default="")
    total = models.IntegerField(default=0)


class Ticket(models.Model):
    """For `claim_rows`."""

    state = models.CharField(max_length=20, default="new")
    taken_by = models.CharField(max_length=50, default="")
    times = models.IntegerField(default=0)
    sheet = models.ForeignKey(Sheet, null=True, on_delete=models.CASCADE)


class Hold(models.Model):
    """Says of a ticket, from another table, that it is not to be taken."""

    ticket = models.ForeignKey(Ticket, on_delete=models.CASCADE, related_name="holds")
