"""The how-to's blocks are tests that pass."""

from __future__ import annotations

import re
import unittest
from pathlib import Path
from typing import Any

import pytest

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "testing.md"


@pytest.mark.django_db
def test_each_block_of_the_how_to_passes() -> None:
    names: dict[str, Any] = {"__name__": "docs_testing"}
    for block in re.findall(r"^```python\n(.*?)^```", HOW_TO.read_text(encoding="utf-8"), re.S | re.M):
        exec(compile(block, str(HOW_TO), "exec"), names)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(names["AddTest"])
    result = suite.run(unittest.TestResult())
    assert result.testsRun == 4
    assert not result.errors + result.failures, result.errors + result.failures
