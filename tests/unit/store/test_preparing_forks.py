"""A process that is forked while another of its threads enqueues can enqueue (case P31)."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress

from django_reliable_jobs.store.prepared_insert import may_prepare


class Slow:
    """A connection that takes its time to be counted."""

    def __init__(self) -> None:
        self.asked = 0
        self.counting, self.go = threading.Event(), threading.Event()

    def __hash__(self) -> int:
        self.asked += 1
        if self.asked > 1:  # the first one looks it up
            self.counting.set()
            self.go.wait(30)
        return 1


class Quick:
    """Another thread's connection."""


def test_a_fork_in_the_middle_of_an_enqueue_leaves_nothing_locked_in_the_child() -> None:
    slow = Slow()
    thread = threading.Thread(target=may_prepare, args=(slow,), daemon=True)
    thread.start()
    assert slow.counting.wait(30)
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        with suppress(BaseException):
            may_prepare(Quick())
            os._exit(0)
        os._exit(1)
    slow.go.set()
    thread.join(30)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
