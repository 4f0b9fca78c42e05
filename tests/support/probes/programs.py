"""An isolated handler that runs a program, which runs another."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from django_reliable_jobs import JobContext, job
from tests.support.probes.models import Mark

_PROGRAM = """
import subprocess, time
print(subprocess.Popen(["sleep", "300"]).pid, flush=True)
time.sleep(300)
"""


@job(isolation="process", takes_context=True, max_attempts=1, timeout=None, memory_limit=200)
def runs_a_program(ctx: JobContext, then: str = "wait") -> None:
    program = subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE)
    assert program.stdout is not None
    for pid in (program.pid, int(program.stdout.readline())):
        Mark.objects.create(label="program", job_id=ctx.job_id, pid=pid)
    if then == "die":
        os._exit(1)
    if then == "eat":
        eaten = []
        while True:
            eaten.append(os.urandom(2**20))
    if then == "look":
        while True:
            ctx.check()
            time.sleep(0.02)
    program.wait()
