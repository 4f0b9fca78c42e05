"""A PostgreSQL cluster in a folder: made, started and stopped with PostgreSQL's own programs."""

from __future__ import annotations

import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from testproject.postgres.binaries import Account, PostgresError, temporary_folder

PREFIX = "reliable-jobs-pg-"
START_TIMEOUT = 60.0
STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
# A Unix socket's path has room for 107 bytes on Linux and 103 on macOS.
LONGEST_SOCKET_PATH = 100
# Below the range from which the kernel takes the ports of outgoing connections: a port from there could be
# gone after a restart.
PORTS = range(20000, 32000)


@dataclass(frozen=True)
class Postmaster:
    """What a running server has written into its `postmaster.pid`."""

    pid: int
    port: int
    socket_dir: str
    address: str
    ready: bool

    @classmethod
    def read(cls, data: Path) -> Postmaster | None:
        try:
            lines = (data / "postmaster.pid").read_text().splitlines()
            pid = int(lines[0])
            command = psutil.Process(pid).cmdline()
        except (OSError, ValueError, IndexError, psutil.Error):
            return None
        if str(data) not in command or len(lines) < 8:  # Some other process's pid, or a server that has just begun.
            return None
        return cls(pid, int(lines[3]), lines[4], lines[5], lines[7].strip() == "ready")


class Cluster:
    def __init__(
        self, home: Path, binaries: Path, account: Account | None, settings: Mapping[str, str], *, tcp: bool, fast: bool
    ) -> None:
        self.home = home
        self.data = home / "data"
        self.log = home / "server.log"
        self.password_file = home / "password"
        self.binaries = binaries
        self.account = account
        self.settings = settings
        self.tcp = tcp
        self.fast = fast
        self.child: subprocess.Popen[bytes] | None = None

    # --- make -------------------------------------------------------------------------------------

    def make(self) -> None:
        wanted = self.version()
        if self.data.exists():
            found = (self.data / "PG_VERSION").read_text().strip()
            if found != wanted:
                raise PostgresError(f"{self.home} was made by PostgreSQL {found}, this is {wanted}: remove the folder.")
            return
        unfinished = self.home / "data.new"  # Renamed when complete: a killed initdb leaves no half of a cluster.
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        self.give_away(unfinished)
        self.password_file.unlink(missing_ok=True)
        self.password_file.touch(mode=0o600)
        self.password_file.write_text(secrets.token_hex(16))
        self.give_away(self.password_file)
        # The socket lies in a folder that only its user (and root) can enter. TCP is open to everybody on the
        # machine, and a superuser of PostgreSQL can run programs: so TCP asks for the password.
        arguments = ["--username=postgres", f"--pwfile={self.password_file}", "--encoding=UTF8", "--no-locale"]
        arguments += ["--auth-local=trust", "--auth-host=scram-sha-256"]
        self.run("initdb", f"--pgdata={unfinished}", *arguments, *(["--no-sync"] if self.fast else []))
        unfinished.rename(self.data)

    def version(self) -> str:
        output = self.run("postgres", "--version")
        found = re.search(r"\(PostgreSQL\) (\d+)", output)
        if found is None:
            raise PostgresError(f"What version is {output!r}?")
        return found[1]

    def run(self, program: str, *arguments: str) -> str:
        result = subprocess.run(
            [str(self.binaries / program), *arguments], capture_output=True, check=False, **self.popen_options()
        )
        if result.returncode:
            message = (result.stdout + result.stderr).decode(errors="replace")
            raise PostgresError(f"{program} failed ({result.returncode}):\n{message}")
        return str(result.stdout, errors="replace")

    def popen_options(self) -> dict[str, Any]:
        # None of the caller's PG* variables, no LD_LIBRARY_PATH, no locale.
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "cwd": "/",
            "env": {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
        }
        if self.account:
            options |= {"user": self.account.uid, "group": self.account.gid, "extra_groups": []}
        return options

    def give_away(self, path: Path) -> None:
        if self.account:
            os.chown(path, self.account.uid, self.account.gid)

    # --- start ------------------------------------------------------------------------------------

    def running(self) -> Postmaster | None:
        return Postmaster.read(self.data)

    def start(self) -> Postmaster:
        self.make()
        return self.boot(free_port(), self.make_socket_dir())

    def start_again(self, last: Postmaster) -> Postmaster:
        """Where it was before: others have its address."""
        return self.boot(last.port, last.socket_dir, keep_port=True)

    def boot(self, port: int, socket_dir: str, *, keep_port: bool = False) -> Postmaster:
        give_up = time.monotonic() + START_TIMEOUT
        while True:
            try:
                return self.boot_once(port, socket_dir)
            except PostgresError as error:
                taken = "Address already in use" in str(error)
                # The server was killed, and its last children are about to notice.
                dying = "pre-existing shared memory block" in str(error)
                if not (taken or dying) or time.monotonic() > give_up:
                    raise
                if taken and not keep_port:
                    port = free_port()
                time.sleep(0.1)

    def boot_once(self, port: int, socket_dir: str) -> Postmaster:
        arguments = [str(self.binaries / "postgres"), "-D", str(self.data)]
        for name, value in self.all_settings(port, socket_dir).items():
            arguments += ["-c", f"{name}={value}"]
        with self.log.open("ab") as log:
            begin = log.tell()
            self.child = subprocess.Popen(
                arguments, stdout=log, stderr=log, start_new_session=True, **self.popen_options()
            )
        give_up = time.monotonic() + START_TIMEOUT
        while True:
            ended = self.child.poll() is not None
            running = None if ended else self.running()
            if running and running.ready and running.pid == self.child.pid:
                return running
            if ended or time.monotonic() > give_up:
                self.halt("immediate")
                with self.log.open("rb") as log:
                    log.seek(begin)
                    text = log.read().decode(errors="replace")
                raise PostgresError(f"PostgreSQL did not start. Its log:\n{text[-4000:]}")
            time.sleep(0.01)

    def all_settings(self, port: int, socket_dir: str) -> dict[str, str]:
        settings = {
            "listen_addresses": "127.0.0.1" if self.tcp else "",
            "port": str(port),
            "unix_socket_directories": socket_dir,
            "max_connections": "300",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] %q%a ",
        }
        if self.fast:
            # A killed server keeps what it committed (the kernel has it); only a power cut would lose it.
            # `synchronous_commit = off` would lose it, so it is not among these.
            settings |= {"fsync": "off", "full_page_writes": "off"}
        return settings | dict(self.settings)

    def make_socket_dir(self) -> str:
        folder = self.home / "socket"
        if len(os.fsencode(folder / f".s.PGSQL.{PORTS[-1]}")) <= LONGEST_SOCKET_PATH:
            folder.mkdir(mode=0o700, exist_ok=True)
        else:
            base = temporary_folder(self.account)
            base = base if len(os.fsencode(base)) < LONGEST_SOCKET_PATH // 2 else Path("/tmp")
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        self.give_away(folder)
        return str(folder)

    # --- stop -------------------------------------------------------------------------------------

    def halt(self, mode: str) -> None:
        """Stop the server, whoever started it, and come back when it and its children are gone."""
        running = self.running()
        pid = running.pid if running else self.child.pid if self.child and self.child.poll() is None else None
        if pid is None:
            return
        try:
            postmaster = psutil.Process(pid)
            family = [postmaster, *postmaster.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in family:  # A test may have left one of them stopped.
            send(process, signal.SIGCONT)
        stages = [(STOP_SIGNALS[mode], 30.0)]
        if mode != "immediate":
            stages.append((signal.SIGQUIT, 10.0))
        for number, patience in stages:
            send(postmaster, number)
            if self.wait_for([postmaster], patience):
                break
        for process in family:
            send(process, signal.SIGKILL)
        self.wait_for(family, 5.0)

    def wait_for(self, processes: list[psutil.Process], patience: float) -> bool:
        give_up = time.monotonic() + patience
        while True:
            if self.child:
                self.child.poll()  # Our own child stays in the process table until it is asked for.
            if not any(is_alive(process) for process in processes):
                return True
            if time.monotonic() > give_up:
                return False
            time.sleep(0.01)

    def remove_socket_dir(self, last: Postmaster) -> None:
        folder = Path(last.socket_dir)
        if folder.name.startswith(PREFIX):  # One of `make_socket_dir`, outside of `home`.
            shutil.rmtree(folder, ignore_errors=True)


def send(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)  # psutil sends nothing to another process that has got the same pid.
    except psutil.NoSuchProcess:
        pass


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def free_port() -> int:
    for port in random.sample(PORTS, 200):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise PostgresError("There is no free port.")
