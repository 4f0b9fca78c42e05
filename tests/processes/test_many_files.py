"""Processes with more than a thousand open files, where `select` refuses to work (case P35)."""

from __future__ import annotations

import resource
import sys

import pytest

from django_reliable_jobs.models import JobStatus
from tests.probes import jobs as probes
from tests.processes.fleet import Fleet
from tests.processes.look import ended

#: What runs before `manage.py`: the descriptors below 1,100 are taken.
_OPEN = """
import os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
for number in range(3, 1100):
    os.dup2(0, number)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.skipif(0 < resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2048, reason="the hard limit is too low")
def test_a_worker_whose_descriptors_begin_above_1024_runs_all_kinds_of_jobs(fleet: Fleet) -> None:
    worker = fleet.start("--slots", "2", prefix=(sys.executable, "-c", _OPEN))
    jobs = [probes.noop.enqueue(1), probes.anoop.enqueue(1), probes.isolated.enqueue("pid")]
    assert {ended(job).status for job in jobs} == {JobStatus.DONE}
    assert worker.stop() == 0
