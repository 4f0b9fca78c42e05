"""What `jobworker` says and sets up at its start (cases U13, U14)."""

from __future__ import annotations

import sys

from tests.support.factories import JobFactory, QueueStateFactory
from tests.support.fleet import Fleet
from tests.support.look import all_done
from tests.support.probes import jobs as probes

LOGS = """
import logging
from tests import settings
settings.LOGGING = %s
import django
django.setup()
from django.core.management import execute_from_command_line
from django_reliable_jobs import job

@job(name="probes.logs")
def logs(label):
    logging.getLogger("shop").info("from the handler: %%s", label)
    logging.info("from the root: %%s", label)
    logging.debug("too much: %%s", label)

execute_from_command_line(["manage.py", "jobworker", "--burst", *%s])
"""

OWN = {"version": 1, "disable_existing_loggers": False, "handlers": {"h": {"class": "logging.StreamHandler"}},
       "root": {"handlers": ["h"], "level": "WARNING"}}  # fmt: skip


def logged(fleet: Fleet, configured: object, *arguments: str) -> str:
    job = probes.note.using(delay=3600).enqueue("x")
    type(job).objects.filter(pk=job.pk).update(name="probes.logs", run_at=job.created_at)
    worker = fleet.run([sys.executable, "-c", LOGS % (configured, list(arguments))], ready=False)
    assert worker.wait() == 0, worker.tail()
    all_done([job])
    return worker.text


def test_what_handlers_log_is_seen_where_the_project_configures_no_logging(fleet: Fleet) -> None:
    text = logged(fleet, {})
    assert text.count("shop: from the handler: x") == 1
    assert text.count("root: from the root: x") == 1
    assert "too much" not in text
    assert text.count(" slots, all queues") == 1, "the worker's own lines, once"
    assert "from the handler" not in logged(fleet, {}, "-v", "0")


def test_a_project_that_configures_logging_decides_for_itself(fleet: Fleet) -> None:
    text = logged(fleet, OWN)
    assert "from the handler" not in text
    assert " slots, all queues" not in text


def test_a_misspelt_queue_is_warned_of(fleet: Fleet) -> None:
    JobFactory(queue="waiting", run_at=probes.noop.using(delay=9999).enqueue().run_at)
    QueueStateFactory(queue="paused", paused=True)
    worker = fleet.start("--queues", "defualt,default:2,waiting,paused,mail", "--exclude-queues", "mial")
    worker.logged("queue 'defualt' is named by no job definition and by no job that waits; did you mean 'default'?")
    worker.logged("queue 'mial' is named by no job definition and by no job that waits; did you mean 'mail'?")
    all_done([probes.noop.enqueue()])
    assert worker.text.count("is named by no job definition") == 2
    assert worker.stop() == 0
