"""The benchmarks run from end to end, and what they print can be read. How fast anything is, is not asked here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cli, machine, report
from benchmarks.plan import WORKLOADS, Entry
from benchmarks.stage import RunFailed, Variant
from benchmarks.workloads import QUICK, repetitions
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


def test_a_deep_table_is_compared_with_the_drain_beside_each_repetition() -> None:
    """A machine that was slower for one of them was so for both."""
    deep = [
        drained(rate, beside=beside, workload="w5", part="deep") for rate, beside in [(90, 100), (60, 64), (80, 100)]
    ]

    assert "0.90 × w1 in turns with it" in report.table([drained(200), *deep])


def test_contenders_take_turns_and_one_that_fails_does_not_keep_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def part(stage: Any, scale: Any) -> Iterator[dict[str, Any]]:
        for turn in range(2):
            if turn and stage.variant.label == "b":
                raise RunFailed("it cannot")
            yield {"rate": turn}

    class NoStage:
        def __init__(self, label: str) -> None:
            self.variant = Variant("ours", label)

        def prepare(self) -> None: ...

    monkeypatch.setitem(WORKLOADS, "w1", ("drain", [part]))
    stages: Any = [(Entry(Variant("ours", label), ("w1",)), NoStage(label)) for label in "abc"]
    done = [record and (record["variant"], record["rate"]) for record in cli.perform("w1", stages, QUICK)]
    assert done == [("a", 0), ("b", 0), ("c", 0), ("a", 1), None, ("c", 1)]


def test_a_repetition_during_which_the_machine_changed_its_pace_counts_as_disturbed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paces = iter([1.0, 0.9, 0.6, 0.9, 0.9, 0.6, 0.6, 0.6])
    monkeypatch.setattr(machine, "pace", lambda: next(paces))
    scale = replace(QUICK, repeat=2, redo=3)
    found = [record["disturbed"] for record in repetitions(scale, lambda _: {"other_cpus": 0.0})]
    assert found == [False, True, True, False]


def test_a_run_that_did_not_complete_says_so() -> None:
    assert "NOT COMPLETE" in report.table([drained(100, complete=False)])


def test_the_table_takes_the_place_of_the_one_between_the_marks(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("before\n<!-- figures of bench -->\nold\n<!-- end of figures -->\nafter\n")

    report.put_into(file, "bench", "new")

    assert file.read_text() == "before\n<!-- figures of bench -->\nnew\n<!-- end of figures -->\nafter\n"
    with pytest.raises(ValueError, match="figures of peers"):
        report.put_into(file, "peers", "new")
