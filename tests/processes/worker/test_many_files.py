"""More open files than `select` can watch (case P35), and fewer than the slots will need (case P41)."""

from __future__ import annotations

import re
import resource
import sys

import pytest

from django_reliable_jobs.models import JobStatus
from tests.support.fleet import Fleet
from tests.support.look import all_done, ended
from tests.support.probes import jobs as probes

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


#: Before `manage.py`: `ulimit -n`.
_LIMIT = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_slots_that_need_more_files_than_there_may_be_are_refused_with_the_number_that_fits(fleet: Fleet) -> None:
    limit = (sys.executable, "-c", _LIMIT, "300")
    refused = fleet.start("--slots", "100", prefix=limit, ready=False)
    assert refused.wait() == 1
    found = re.search(
        r"--slots 100 needs about \d+ open files, and a process may have 300.* at most --slots (\d+) fit", refused.text
    )
    assert found, refused.tail()
    fit = int(found[1])
    assert 10 < fit < 100
    worker = fleet.start("--slots", str(fit), prefix=limit, settings={"PREFETCH": 0})
    kinds = (probes.calm, probes.calm_async, probes.isolated)
    for kind in kinds:
        # As many at the same time as there are slots, so that each of them runs each kind.
        jobs = [kind.enqueue("x" if kind is probes.isolated else 2.0) for _ in range(2 * fit)]
        all_done(jobs, timeout=200)
    assert len(worker.started()) == 1, worker.tail()
    assert "Too many open files" not in worker.text
    assert worker.stop() == 0
