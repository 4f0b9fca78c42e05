"""`manage.py jobworker`: run jobs until told to stop."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings as django_settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from django_reliable_jobs import conf
from django_reliable_jobs.worker.options import WorkerOptions, parse_queues
from django_reliable_jobs.worker.processes import reload, supervisor
from django_reliable_jobs.worker.processes.open_files import too_many_slots


class Command(BaseCommand):
    help = "Runs jobs. Start as many as you like, on as many hosts as you like; SIGTERM or Ctrl-C stops one in order."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--queues", help='queues to serve, with at most so many slots each: "mail:4,default" (default: all)')
        add("--exclude-queues", help="queues not to serve, separated by commas")
        add("--slots", type=int, default=8, help="jobs that one process runs at a time (default: 8)")
        add("--processes", type=int, default=1, help="worker processes (default: 1)")
        add("--burst", action="store_true", help="run what is due and exit: 0 when nothing failed, 1 otherwise")
        add("--max-jobs", type=int, help="run at most so many jobs and exit")
        add("--grace", type=float, help="seconds that running jobs get to finish after SIGTERM (default: GRACE)")
        add("--max-jobs-per-process", type=int, help="replace a worker process after so many jobs")
        add("--max-rss", type=int, help="replace a worker process that uses more than so many MiB")

        add("--reload", action="store_true", help="for developers: start anew when code changes")

    def handle(self, *args: Any, **options: Any) -> None:
        for name in ("slots", "processes", "max_jobs", "max_jobs_per_process", "max_rss"):
            if options[name] is not None and options[name] < 1:
                raise CommandError(f"--{name.replace('_', '-')} is at least 1.")
        if problem := too_many_slots(options["slots"]):
            raise CommandError(problem)
        grace = conf.current().grace if options["grace"] is None else options["grace"]
        if not 0 <= grace < 10**6:
            raise CommandError("--grace is a number of seconds, 0 or more.")
        if options["processes"] > 1 and (options["burst"] or options["max_jobs"] is not None):
            raise CommandError("--burst and --max-jobs run in one process; leave --processes out.")
        try:
            queues = parse_queues(options["queues"], options["exclude_queues"])
        except ValueError as error:
            raise CommandError(str(error)) from None
        _log_to_stderr(logging.INFO if options["verbosity"] > 0 else logging.WARNING)
        _refuse_open_transactions()
        if options["reload"]:
            reload.main()
        reload.end_with_the_watcher()
        code = supervisor.run(
            WorkerOptions(
                queues=queues,
                slots=options["slots"],
                processes=options["processes"],
                burst=options["burst"],
                max_jobs=options["max_jobs"],
                grace=grace,
                max_jobs_per_process=options["max_jobs_per_process"],
                max_rss=options["max_rss"],
            )
        )
        if code:
            sys.exit(code)


def _refuse_open_transactions() -> None:
    """A worker closes this process' connections before it forks: that would throw away the caller's transaction."""
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            raise CommandError(
                f"jobworker cannot run inside atomic(): the connection {connection.alias!r} has an open transaction, which"
                " it would throw away, and whose jobs no worker sees. In a test use TransactionTestCase (pytest-django:"
                " transactional_db) instead of TestCase, or run one handler with its .call(); in a view, turn"
                " ATOMIC_REQUESTS off for it (transaction.non_atomic_requests)."
            )


def _log_to_stderr(level: int) -> None:
    """A project that does not configure logging still sees what its worker says, and what its handlers log.

    Where it configures it, what it does not route is its own decision; only the worker's lines are not lost.
    """
    ours, root = logging.getLogger("django_reliable_jobs"), logging.getLogger()
    if ours.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"))
    if django_settings.LOGGING or django_settings.LOGGING_CONFIG is None:
        ours.addHandler(handler)
        ours.setLevel(level)
    else:
        handler.addFilter(_not_djangos)
        root.addHandler(handler)
        root.setLevel(level)


def _not_djangos(record: logging.LogRecord) -> bool:
    """With DEBUG Django's own default writes these already."""
    return not django_settings.DEBUG or record.name.partition(".")[0] != "django"
