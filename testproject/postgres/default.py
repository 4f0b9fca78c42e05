"""The server that `manage.py` brings where DATABASE_URL names none."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testproject.postgres.binaries import Account, temporary_folder
from testproject.postgres.server import PROJECT_ROOT, EmbeddedPostgres

DATABASE = "testproject"
# Commands of manage.py that work, or say what is wrong, without a server.
WITHOUT_DATABASE = {
    "check",
    "collectstatic",
    "compilemessages",
    "diffsettings",
    "findstatic",
    "help",
    "makemessages",
    "startapp",
    "startproject",
    "version",
}


def default_data_dir() -> Path:
    """Where `manage.py` keeps its databases: in the checkout, or, as root, where an unprivileged user can reach it."""
    if os.geteuid() != 0:
        return PROJECT_ROOT / ".postgres"
    mark = hashlib.sha256(os.fsencode(PROJECT_ROOT)).hexdigest()[:12]
    return temporary_folder(Account.choose()) / f"django-reliable-jobs-data-{mark}"


@contextmanager
def default_database(arguments: Sequence[str]) -> Iterator[None]:
    """Around a command of `manage.py`: sets DATABASE_URL, with a server behind it, where it is missing."""
    needed = (
        len(arguments) > 1
        and (arguments[1] not in WITHOUT_DATABASE or "--database" in arguments)
        and not {"-h", "--help"}.intersection(arguments)
    )
    if os.environ.get("DATABASE_URL") or not needed:
        yield
        return
    with EmbeddedPostgres(default_data_dir()) as server:
        os.environ["DATABASE_URL"] = server.create_database(DATABASE)
        yield
