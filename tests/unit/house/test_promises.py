"""`docs/design/promises.md` and the tests hold each other: no case without its row, no row without its tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "docs" / "design" / "promises.md"
#: The name of a case, as a docstring names it: L06, C19; FR- before those public reports whose letter trials use too.
CASE = re.compile(r"\b(?:FR-)?[A-Z]\d{2}\b")


def rows() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if CASE.fullmatch(cells[0]):
            assert len(cells) == 3, line
            assert cells[0] not in found, f"{cells[0]} has two rows"
            found[cells[0]] = [test.strip(" `") for test in cells[2].split("<br>")]
    return found


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def named_in_docstrings() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
                for case in CASE.findall(ast.get_docstring(node) or ""):
                    yield case, f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def test_the_table_is_read() -> None:
    assert len(rows()) > 40


@pytest.mark.parametrize("case", rows())
def test_the_tests_of_a_promise_exist(case: str) -> None:
    for test in rows()[case]:
        name, _, function = test.partition("::")
        path = ROOT / name
        assert path.is_file(), f"{case}: there is no {name}"
        assert not function or function.partition("[")[0] in functions(path), f"{case}: there is no {test}"


def test_every_case_that_a_docstring_names_has_its_row() -> None:
    known = rows()
    assert [place for place in named_in_docstrings() if place[0] not in known] == []
