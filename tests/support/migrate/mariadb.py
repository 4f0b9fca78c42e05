"""A MariaDB server of one's own, from Debian's `mariadb-server-core` and `mariadb-client-core`; nothing of it stays.

It is reached through a Unix socket in a folder that only its user (and root) can enter.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testproject.postgres.binaries import Account, temporary_folder

PATIENCE = 60.0


def missing() -> str:
    """What this machine lacks for it; empty if it lacks nothing."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
    gone = [
        name
        for name in ("mariadbd", "mariadb-install-db", "my_print_defaults")
        if shutil.which(name, path=path) is None
    ]
    if gone:
        return f"needs {' and '.join(gone)}: apt-get install mariadb-server-core mariadb-client-core"
    return "" if importlib.util.find_spec("pymysql") else "needs pymysql: pip install pymysql"


class MariaDB:
    def __init__(self) -> None:
        account = Account.choose()
        self.home = Path(tempfile.mkdtemp(prefix="reliable-jobs-mariadb-", dir=temporary_folder(account)))
        self.socket = self.home / "socket"
        self._user = [f"--user={account.name}"] if account else []
        if account:
            os.chown(self.home, account.uid, account.gid)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["--no-defaults", f"--datadir={self.home / 'data'}", *self._user]
        environment = os.environ | {"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"}
        subprocess.run(
            ["mariadb-install-db", *options, "--auth-root-authentication-method=normal", "--skip-test-db",
             "--skip-name-resolve"],
            env=environment, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=self.home,
        )  # fmt: skip
        log = (self.home / "log").open("wb")
        with log:
            self._process = subprocess.Popen(
                ["mariadbd", *options, f"--socket={self.socket}", f"--pid-file={self.home / 'pid'}",
                 "--skip-networking", "--innodb-buffer-pool-size=16M"],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home,
            )  # fmt: skip
        import pymysql

        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                self.connect().close()
                return
            except pymysql.OperationalError:
                said = (self.home / "log").read_text()[-2000:]
                assert self._process.poll() is None, said
                assert time.monotonic() < give_up, said
                time.sleep(0.05)

    def connect(self, database: str | None = None) -> Any:
        import pymysql

        return pymysql.connect(unix_socket=str(self.socket), user="root", database=database, autocommit=True)

    def rows(self, statement: str, *params: object) -> list[tuple[Any, ...]]:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement, params or None)
            return list(cursor.fetchall())

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.home, ignore_errors=True)
