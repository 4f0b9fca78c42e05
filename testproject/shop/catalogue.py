"""The shop's catalogue as its supplier sends it: a CSV file with 100 books."""

from __future__ import annotations

import csv
from pathlib import Path

CATALOGUE = Path(__file__).parent / "data" / "catalogue.csv"


def read_records(path: Path = CATALOGUE) -> list[dict[str, str]]:
    """The file's records, each with `sku`, `title`, `author`, `year`, `price` and `quantity`."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
