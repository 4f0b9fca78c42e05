"""The site as a process of its own: pages and static files, on a free port of this machine."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from testproject.postgres import PROJECT_ROOT


class Site:
    """`url` ends in the admin's root. The socket listens before the process starts, so nobody waits for it."""

    def __init__(self, env: Mapping[str, str], log: Path) -> None:
        self.log = log
        with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, log.open("wb") as output:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/admin/"
            fd = listener.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "testproject.demo.serve", str(fd)],
                cwd=PROJECT_ROOT, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[fd],
            )  # fmt: skip

    def tail(self) -> str:
        """The end of its log, with the tracebacks of its errors; without the requests that went well."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not re.search(r'" [23]\d\d \d+$', line))[-6000:]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
