"""Before a worker begins: the tables have to be there, as its version of the package needs them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django.db import Error as DatabaseTrouble

from django_reliable_jobs.connections.own_connection import own_connection
from django_reliable_jobs.migration_lock import pending_migrations
from django_reliable_jobs.worker import log

logger = logging.getLogger("django_reliable_jobs.worker")

#: Seconds between two looks.
LOOK_EVERY = 1.0


def wait_for_schema(alias: str, limit: float, stopped: Callable[[float], bool]) -> bool:
    """Wait up to `limit` seconds (0: for ever) for this app's migrations, which another pod may be applying just now.

    `stopped(seconds)` waits, and says whether somebody asked the worker to stop. False: stopped, or given up.
    """
    give_up_at = time.monotonic() + limit if limit else float("inf")
    said = ""
    while True:
        try:
            with own_connection(alias, "start"):
                if not pending_migrations(alias):
                    if said:
                        logger.warning("the worker waits no longer: the database answers, the migrations are applied")
                    return True
            why = "migrations of django_reliable_jobs are not applied yet; `manage.py migrate` does it"
        except DatabaseTrouble as error:
            why = f"the database cannot be reached: {str(error).strip()}"
            if log.is_missing_right(error):
                why = f"{str(error).strip()}: its role needs USAGE on the schema and SELECT on django_migrations"
        if why != said:
            said = why
            logger.warning("the worker waits: %s", why)
        if stopped(LOOK_EVERY):
            return False
        if time.monotonic() >= give_up_at:
            logger.error("the worker waited for %g s and gives up: %s", limit, said)
            return False
