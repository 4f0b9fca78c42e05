"""The key and the marks, on which different versions of the package have to agree."""

from __future__ import annotations

import socket

import pytest
from django.test import override_settings

from django_reliable_jobs.migration_lock.identity import Holder, key_for, lock_mark, read_mark, run_mark


def test_the_key_of_a_database_and_schema_never_changes() -> None:
    assert key_for("shop", "public") == -2046489444929127697
    assert key_for("shop", "tenant") != key_for("shop", "public") != key_for("shop2", "public")
    assert key_for("ab", "c") != key_for("a", "bc")


@override_settings(RELIABLE_JOBS={"MIGRATE": {"KEY": -5}})
def test_the_setting_overrides_the_key() -> None:
    assert key_for("shop", "public") == -5


@pytest.mark.parametrize("host", ["web-1", "söhne & co", "x" * 64, "shop-worker-7d9f8b6c5d-x2x4z.shop.svc.local"])
def test_a_mark_is_short_and_can_be_read(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    monkeypatch.setattr("os.getpid", lambda: 4194304)
    mark = lock_mark(1_800_000_000)
    assert len(mark) <= 63
    assert mark.isascii()
    holder = read_mark(mark + " - 10.0.0.1:5", now=1_800_000_012.4, session="server process 7")
    assert (holder.pid, round(holder.seconds or 0)) == (4194304, 12)
    assert str(holder) == f"held by host {holder.host}, pid 4194304, for 12 s (server process 7)"
    run = read_mark(run_mark(-1), now=0, session="server process 8")
    assert len(run_mark(-1)) <= 63
    assert str(run) == f"lost by host {run.host}, pid 4194304 (server process 8), which has not ended yet"


def test_pods_whose_names_differ_at_the_end_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a-deployment-with-a-long-name-7d9f8b6c5d-"
    monkeypatch.setattr(socket, "gethostname", lambda: name + "x2x4z")
    assert lock_mark(1_800_000_000).endswith("6c5d-x2x4z")


@pytest.mark.parametrize("mark", [None, "", "psql", "migrate-lock soon 7 host", "migrate-lock 1 2"])
def test_a_session_without_a_mark_is_named_as_the_server_calls_it(mark: str | None) -> None:
    assert read_mark(mark, now=0, session="server process 9") == Holder(session="server process 9")
    assert str(Holder(session="server process 9")) == "held by server process 9"
    assert str(Holder()) == "held by an unknown session"
