"""The worked example of `docs/how-to/guards-and-fencing.md`, taken from there, so that what is tried is what is printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from testproject.postgres import PROJECT_ROOT

_PAGE = PROJECT_ROOT / "docs" / "how-to" / "guards-and-fencing.md"
_blocks = re.findall(r"```python\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
(_source,) = [block for block in _blocks if "STORE_IF_NEWER =" in block]
_names: dict[str, Any] = {}
exec(compile(_source, str(_PAGE), "exec"), _names)

store_if_newer: Callable[[Any, str, int, str], bool] = _names["store_if_newer"]
