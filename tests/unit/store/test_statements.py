"""The store's statements, as texts."""

from __future__ import annotations

import re

import pytest

from django_reliable_jobs.store import statements

NAMES = statements.names()


def test_once_loaded_they_do_not_change_with_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is upgraded under a living supervisor: the old code's next child runs the old statements."""
    statements.load.cache_clear()
    statements.load_all()

    def gone(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(statements, "text_of", gone)
    assert all(statements.load(name).strip() for name in NAMES)
    assert len(NAMES) > 20


@pytest.mark.parametrize("name", NAMES)
def test_with_positional_parameters_it_is_the_same_statement(name: str) -> None:
    named = statements.load(name)
    text, order = statements._positional(named)
    assert len(set(order)) == len(order)
    assert set(order) == set(re.findall(r"%\((\w+)\)s", named))
    for position in reversed(range(len(order))):
        text = text.replace(f"${position + 1}", f"%({order[position]})s")
    assert text == named
