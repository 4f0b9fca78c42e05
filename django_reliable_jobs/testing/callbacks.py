"""What a commit would run, in a test whose transaction is never committed.

A callback that has run stays in Django's list as one that does nothing: `captureOnCommitCallbacks` counts from a place in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.db import connections

from django_reliable_jobs.connections.tests_transaction import only_a_tests

logger = logging.getLogger("django_reliable_jobs.testing")


class _HasRun:
    def __init__(self, callback: Callable[[], Any]) -> None:
        self.__wrapped__ = callback

    def __call__(self) -> None:
        pass


def run_callbacks(alias: str) -> None:
    """Run the `on_commit` callbacks that wait, if no block is open but those of `TestCase`. Errors of those that are not
    robust are raised."""
    connection = connections[alias]
    waiting: list[Any] = connection.run_on_commit
    place = 0
    while place < len(waiting) and only_a_tests(connection):  # a callback may add others
        savepoints, callback, robust = waiting[place]
        if not isinstance(callback, _HasRun):
            waiting[place] = (savepoints, _HasRun(callback), robust)
            _run(callback, robust=robust)
        place += 1


def _run(callback: Callable[[], Any], *, robust: bool) -> None:
    try:
        callback()
    except Exception as error:
        if not robust:
            raise
        logger.error("a robust on_commit callback failed: %s", error, exc_info=error)
