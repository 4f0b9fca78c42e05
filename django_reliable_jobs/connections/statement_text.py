"""Statements as they stand in a package's `sql/`, and the rows that they bring."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from django_reliable_jobs.values.moments import EARLIEST, LATEST

Row = tuple[Any, ...]

#: LEAST and GREATEST would make a moment of NULL.
_MOMENT = (
    f"CASE WHEN {{0}} < timestamptz '{EARLIEST}' THEN timestamptz '{EARLIEST}'"
    f" WHEN {{0}} > timestamptz '{LATEST}' THEN timestamptz '{LATEST}' ELSE {{0}} END"
)


def text_of(package: str, name: str) -> str:
    """The text of `sql/<name>.sql` of a package, without its comment lines, which would travel with every execution.

    A line `{parts/name}` stands for the text of that file, of which several statements are made; `{moment column}` for the
    column, or for the nearest moment that Python can show in any zone: raw SQL may have written another.
    """
    text = files(package).joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    text = re.sub(r"^ *\{(parts/\w+)\}$", lambda found: text_of(package, found[1]), text, flags=re.MULTILINE)
    return re.sub(r"\{moment ([\w.]+)\}", lambda found: _MOMENT.format(found[1]), text)
