"""A PgBouncer in transaction mode before a server of one's own, for tests of what a pooler does to connections.

    with EmbeddedPostgres() as server, PgBouncer(server, pool_size=2) as pooler:
        psycopg.connect(pooler.url("shop"))

It is Debian's package `pgbouncer`. As root it runs as the user that the server runs as. It is reached through a Unix
socket that only its user can open, and with `tcp` on a port of 127.0.0.1 too, with the server's password.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from testproject.postgres import EmbeddedPostgres, PostgresError, database_url
from testproject.postgres.binaries import Account, temporary_folder

PORT = 6432  # without `tcp` only a part of the socket's name
START_TIMEOUT = 30.0


class PgBouncer:
    """`pool_size`: server connections a database and user. `users`: roles that may log in. `settings`: more lines for
    its configuration, such as `query_wait_timeout=5`."""

    def __init__(
        self,
        server: EmbeddedPostgres,
        *,
        pool_size: int = 2,
        users: Iterable[str] = ("postgres",),
        tcp: bool = False,
        **settings: object,
    ) -> None:
        self.server = server
        self.tcp = tcp
        self.port = free_port() if tcp else PORT
        self.settings = {"pool_mode": "transaction", "default_pool_size": pool_size} | settings
        self.users = list(users)
        self.home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        binary = find_binary()
        account = Account.choose()
        self.home = Path(tempfile.mkdtemp(prefix="reliable-jobs-pgbouncer-", dir=temporary_folder(account)))
        atexit.register(self.stop)
        config = self.home / "pgbouncer.ini"
        config.write_text(self._config())
        names = self.home / "users.txt"
        password = self.server.password if self.tcp else ""
        names.write_text("".join(f'"{user}" "{password}"\n' for user in self.users))
        ways = self.home / "ways.txt"
        ways.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        if account:
            for path in (self.home, config, names, ways):
                os.chown(path, account.uid, account.gid)
        self._process = subprocess.Popen(
            [*self._prefix(account), binary, "--quiet", str(config)], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True,
        )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self.home is not None:
            shutil.rmtree(self.home, ignore_errors=True)
        atexit.unregister(self.stop)

    def url(self, dbname: str, *, user: str = "postgres") -> str:
        return database_url(dbname, host=str(self.home), port=self.port, user=user)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def log(self) -> Path:
        assert self.home is not None
        return self.home / "pgbouncer.log"

    def _config(self) -> str:
        assert self.home is not None
        settings = (
            {
                "unix_socket_dir": self.home,
                "listen_port": self.port,
                "logfile": self.log,
                "auth_type": "hba" if self.tcp else "trust",
                "auth_hba_file": self.home / "ways.txt",
                "auth_file": self.home / "users.txt",
                "admin_users": "postgres",
                "max_client_conn": 300,
            }
            | ({"listen_addr": "127.0.0.1"} if self.tcp else {})
            | self.settings
        )
        lines = [f"{name} = {value}" for name, value in settings.items()]
        server = f"host={self.server.socket_dir} port={self.server.port}"
        return "\n".join(["[databases]", f"* = {server}", "[pgbouncer]", *lines, ""])

    @staticmethod
    def _prefix(account: Account | None) -> list[str]:
        """It ends with the process that has started it, also when that one is killed. `setpriv` comes with Debian."""
        identity = [f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups"] if account else []
        return ["setpriv", "--pdeathsig=KILL", *identity]

    def _wait(self) -> None:
        assert self._process is not None
        give_up = time.monotonic() + START_TIMEOUT
        while True:
            try:
                psycopg.connect(self.url("pgbouncer"), autocommit=True, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > give_up:
                    log = self.log.read_text() if self.log.exists() else ""
                    raise PostgresError(f"PgBouncer did not start ({error}). Its log:\n{log[-4000:]}") from error
            time.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


def find_binary() -> str:
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if found is None:
        raise PostgresError("There is no pgbouncer, on the path or in /usr/sbin. On Debian: apt-get install pgbouncer")
    return found
