"""The process group of an isolated job's child: the child leads it, and the programs that its handlers start are in it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


def lead_a_group() -> None:
    """In the child: a session, and so a group, of its own. A Ctrl-C in the terminal does not reach it any more."""
    with suppress(OSError):
        os.setsid()


def kill_group(leader: int) -> None:
    """Kill the child and all programs in its group. A program that has left it, as daemons do, is out of reach.

    `leader` is a child that nobody has waited for, so that the number is still its own. One that was only just forked may
    not lead its group yet: it is killed itself.
    """
    try:
        os.killpg(leader, signal.SIGKILL)
    except OSError:
        with suppress(OSError):
            os.kill(leader, signal.SIGKILL)
