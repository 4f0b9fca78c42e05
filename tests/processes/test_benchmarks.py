"""The benchmarks run from end to end, and what they print can be read. How fast anything is, is not asked here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.plan import WORKLOADS
from testproject.postgres import PROJECT_ROOT


@pytest.mark.slow
def test_a_quick_run_measures_every_workload(tmp_path: Path) -> None:
    records, table = run_quickly(tmp_path / "records.json")

    measured = {(record["workload"], record["contender"]) for record in records}
    assert {(name, "ours") for name in WORKLOADS} <= measured
    assert {("w1", "raw"), ("w3", "raw"), ("w6", "raw")} <= measured
    for record in records:
        assert record.get("complete", True), record
        for figure in ("rate", "wal", "commits", "rss", "call_p50", "all_again", "statements"):
            assert record.get(figure, 1) > 0, (figure, record)
    rows = [
        line.split(" | ") for line in table.splitlines() if line.startswith(tuple(f"| {name} " for name in WORKLOADS))
    ]
    assert {row[0].split()[1] for row in rows} == set(WORKLOADS)
    assert all(len(row) == len(report.HEAD) for row in rows)


def run_quickly(file: Path) -> tuple[list[dict[str, Any]], str]:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--json", str(file)],
        cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-4000:]
    return [json.loads(line) for line in file.read_text().splitlines()], result.stdout


def test_a_workload_that_does_not_exist_is_refused_by_name() -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "w1,w99"]
    result = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 2
    assert "w99" in result.stderr


def drained(rate: float, **more: Any) -> dict[str, Any]:
    return {"workload": "w1", "part": "one", "contender": "ours", "variant": "default settings", "rate": rate} | more


@pytest.mark.parametrize(
    ("records", "median"),
    [
        ([drained(100), drained(300), drained(200)], "200 jobs/s"),
        ([drained(100, disturbed=True), drained(300), drained(400)], "350 jobs/s"),
        ([drained(100, disturbed=True), drained(200, disturbed=True)], "150 jobs/s"),
    ],
    ids=["of all", "of the undisturbed ones", "of the disturbed ones where there is no other"],
)
def test_the_table_shows_the_median(records: list[dict[str, Any]], median: str) -> None:
    assert f"| {median} |" in report.table(records)


def test_a_deep_table_is_compared_with_the_drain_without_it() -> None:
    deep = drained(90, workload="w5", part="deep")

    assert "0.90 × w1" in report.table([drained(100), deep])


def test_a_run_that_did_not_complete_says_so() -> None:
    assert "NOT COMPLETE" in report.table([drained(100, complete=False)])


def test_the_table_takes_the_place_of_the_one_between_the_marks(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("before\n<!-- figures of bench -->\nold\n<!-- end of figures -->\nafter\n")

    report.put_into(file, "bench", "new")

    assert file.read_text() == "before\n<!-- figures of bench -->\nnew\n<!-- end of figures -->\nafter\n"
    with pytest.raises(ValueError, match="figures of peers"):
        report.put_into(file, "peers", "new")
