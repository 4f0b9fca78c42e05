"""Whether the sequence of fencing tokens is in step with the tables: asked at a worker's start, and once a minute."""

from __future__ import annotations

import logging

from django.db import Error as DatabaseTrouble

from django_reliable_jobs.connections.own_connection import own_connection
from django_reliable_jobs.store import tokens
from django_reliable_jobs.values.log_limit import LogLimit
from django_reliable_jobs.worker import log

logger = logging.getLogger("django_reliable_jobs.worker")

_limit = LogLimit()


def in_step(alias: str) -> bool:
    """At a start: whether the worker may begin. False: it is behind, and this role may not raise it."""
    try:
        with own_connection(alias, "start"):
            return keep_in_step(alias)
    except DatabaseTrouble as error:
        log.trouble("comparing the sequence of fencing tokens", error)
        return True  # maintenance compares again


def keep_in_step(alias: str) -> bool:
    """Raise the sequence if it is behind, and the mark with it. Raises what the database raises."""
    found = tokens.behind(alias)
    if found is not None:
        try:
            found = tokens.raise_sequence(alias) or found
        except DatabaseTrouble as error:
            if log.is_connection_trouble(error):
                raise
            if _limit.due(alias):
                logger.error("%s, and cannot be raised (%s). Run: %s", found, str(error).strip(), found.remedy)
            return False
        logger.warning("%s. It is set to %s", found, found.target)
    tokens.raise_mark(alias)
    return True
