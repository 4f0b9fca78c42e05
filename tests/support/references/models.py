"""A project's own tables that refer to jobs, in every way that Django has."""

from __future__ import annotations

from django.db import models

from django_reliable_jobs.models import Job


class Receipt(models.Model):
    """Must not lose its job."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="+")


class Contract(models.Model):
    job = models.OneToOneField(Job, on_delete=models.RESTRICT)


class Invoice(models.Model):
    job = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL)


class Note(models.Model):
    job = models.ForeignKey(Job, on_delete=models.CASCADE)


class Seal(models.Model):
    """Keeps a note, and with it the note's job."""

    note = models.ForeignKey(Note, on_delete=models.PROTECT)


class Report(models.Model):
    jobs = models.ManyToManyField(Job)


class Trace(models.Model):
    """The database knows nothing of it, and nobody cares whether the job is still there."""

    job = models.ForeignKey(Job, on_delete=models.DO_NOTHING, db_constraint=False)


class Entry(models.Model):
    """The database would refuse."""

    job = models.ForeignKey(Job, on_delete=models.DO_NOTHING, related_name="entries")
