"""Guards on a database in which no migration has run yet (N12)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pytest
from django.db import connections, transaction

from django_reliable_jobs.errors import GuardUnavailable
from django_reliable_jobs.guards import claim_once, claim_period, run_exclusive, run_once
from testproject.postgres import EmbeddedPostgres


@pytest.fixture(autouse=True)
def empty_database(database: None, postgres: EmbeddedPostgres) -> Iterator[None]:
    """Without a table."""
    name = f"empty_{uuid.uuid4().hex[:12]}"
    postgres.create_database(name)
    address = connections.settings["default"]
    before = dict(address)
    connections.close_all()
    address["NAME"] = name
    yield
    connections.close_all()
    address.clear()
    address.update(before)


def test_a_period_is_skipped_with_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "django_reliable_jobs"):
        assert [claim_period("tick", 60) for _ in range(3)] == [False] * 3
    [line] = [record.getMessage() for record in caplog.records]
    assert "0003_guards" in line
    assert "manage.py migrate" in line


def test_the_others_name_what_is_missing() -> None:
    for verb in (
        lambda: claim_once("order:1"),
        lambda: run_once("report", 60, list),
        lambda: run_exclusive("import", 60, list),
    ):
        with pytest.raises(GuardUnavailable, match=r"0003_guards.*manage\.py migrate"):
            verb()


def test_in_a_transaction_a_period_raises_since_the_transaction_is_lost() -> None:
    with pytest.raises(GuardUnavailable, match="0003_guards"), transaction.atomic():
        claim_period("tick", 60)
