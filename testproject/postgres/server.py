"""A server as its user sees it. What is behind it stands in `keeper.py`."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from testproject.postgres.binaries import PostgresError
from testproject.postgres.urls import database_url

PROJECT_ROOT = Path(__file__).resolve().parent.parent.parent
Mode = Literal["smart", "fast", "immediate"]


class EmbeddedPostgres:
    """A server in a folder of its own, reached through a Unix socket that only its user can open.

    Without `data_dir` everything lies in a new folder under the temporary folder and is removed at the end.
    With it the databases stay; several processes may name the same folder, they then share one server, and
    the last one stops it.

    `tcp` also listens on 127.0.0.1 (for proxies and poolers), where a password is asked for. `fast` does not
    wait for the disk: a restart or a killed server loses nothing, a power cut would. `binaries` is a folder
    with another version's programs; TEST_POSTGRES_BIN in the environment does the same.
    """

    port: int
    socket_dir: Path
    home: Path
    bin: Path
    password: str

    def __init__(
        self,
        data_dir: Path | str | None = None,
        settings: Mapping[str, object] | None = None,
        *,
        fast: bool = False,
        tcp: bool = False,
        binaries: Path | str | None = None,
    ) -> None:
        binaries = binaries or os.environ.get("TEST_POSTGRES_BIN") or None
        self._options = {
            "home": str(Path(data_dir).resolve()) if data_dir else None,
            "temporary": data_dir is None,
            "binaries": str(Path(binaries).resolve()) if binaries else None,
            "settings": {name: str(value) for name, value in (settings or {}).items()},
            "tcp": tcp,
            "fast": fast,
        }
        self._keeper: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._turn = threading.Lock()

    # --- start and stop ---------------------------------------------------------------------------

    def start(self) -> Self:
        if self._keeper is not None:
            raise PostgresError("This server has been started already.")
        self._keeper = spawn_keeper(self._options)
        self._owner = os.getpid()
        try:
            answer = self._ask("start")
        except BaseException:
            self.stop()
            raise
        self.home, self.bin = Path(answer["home"]), Path(answer["bin"])
        self.socket_dir, self.port, self.password = Path(answer["socket_dir"]), answer["port"], answer["password"]
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Stop the server (if nobody else uses it) and wait until it is gone. Stopping twice is fine."""
        if self._keeper is None or self._owner != os.getpid():  # Not from a forked child.
            return
        try:
            self._ask("stop")
        except PostgresError:
            if hasattr(self, "home"):  # The keeper was killed: another one tidies up after it.
                second = spawn_keeper(self._options | {"home": str(self.home)})
                ask(second, "stop")
                end_keeper(second)
        end_keeper(self._keeper)
        self._keeper = None
        atexit.unregister(self.stop)

    def restart(self, mode: Mode = "fast") -> None:
        """`fast` closes every connection in an orderly way, `immediate` is a crash with recovery."""
        with self.outage(mode):
            pass

    @contextmanager
    def outage(self, mode: Mode = "fast") -> Iterator[None]:
        """The server is down inside the block, and back on the same port and socket after it."""
        self._ask("down", mode=mode)
        try:
            yield
        finally:
            self._ask("up")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _ask(self, what: str, **details: str) -> dict[str, Any]:
        keeper = self._keeper
        if keeper is None:
            raise PostgresError("The server has not been started.")
        with self._turn:
            answer = ask(keeper, what, **details)
        if not answer["ok"]:
            raise PostgresError(answer["error"])
        return answer

    # --- use --------------------------------------------------------------------------------------

    def url(self, dbname: str = "postgres", *, tcp: bool = False) -> str:
        """For psycopg, libpq's programs and django-environ alike."""
        if tcp:
            return database_url(dbname, host="127.0.0.1", port=self.port, password=self.password)
        return database_url(dbname, host=str(self.socket_dir), port=self.port)

    def create_database(self, name: str) -> str:
        """The database's URL; one that is there already is left as it is."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.url(), autocommit=True) as connection:
            try:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                pass
        return self.url(name)

    @property
    def log(self) -> Path:
        return self.home / "server.log"


def spawn_keeper(options: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    arguments = json.dumps({**options, "parent": os.getpid()})
    return subprocess.Popen(
        [sys.executable, "-m", "testproject.postgres.keeper", arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # Not the caller's: whoever reads that to its end would wait for the keeper.
        start_new_session=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT_ROOT), os.environ.get("PYTHONPATH", "")])},
    )


def ask(keeper: subprocess.Popen[bytes], what: str, **details: str) -> dict[str, Any]:
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    number = time.monotonic_ns()
    try:
        keeper.stdin.write(json.dumps({"do": what, "number": number, **details}).encode() + b"\n")
        keeper.stdin.flush()
        for line in keeper.stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer["number"] == number:  # Not the answer for which a Ctrl-C did not let us wait.
                return answer
    except BrokenPipeError:
        pass
    return {"ok": False, "error": "The process that keeps the server has ended."}


def end_keeper(keeper: subprocess.Popen[bytes]) -> None:
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        keeper.stdin.close()
    except BrokenPipeError:
        pass
    keeper.wait()
    keeper.stdout.close()
