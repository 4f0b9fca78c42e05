"""Reads go where the tables are."""

from __future__ import annotations

from typing import Any

from django.db import models

from django_reliable_jobs import conf


class JobsManager(models.Manager[Any]):
    """Uses the alias of `RELIABLE_JOBS["DATABASE"]` unless the caller says otherwise, with or without a router.

    A router may send reads to a replica; what the queue looks like has to come from where it is written. What belongs to a
    job (`job.attempt_set`) comes from where the job came from.
    """

    def get_queryset(self) -> models.QuerySet[Any]:
        queryset = super().get_queryset()
        owner = getattr(self, "instance", None)  # of a related manager
        origin = None if owner is None else owner._state.db
        return queryset if self._db is not None else queryset.using(origin or conf.current().database)
