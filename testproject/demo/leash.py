"""python -m testproject.demo.leash PARENT command ...

Becomes the command, which on Linux gets SIGTERM when the demo dies: what the demo has started must not outlive it, even
where it was killed with SIGKILL. (The database has its keeper for that.)
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # It died before we asked.
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
