"""The command line, and the order of a run."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks import report
from benchmarks.database import Server
from benchmarks.plan import WORKLOADS, Entry, Workload
from benchmarks.stage import RunFailed, Stage
from benchmarks.workloads import QUICK, Record, Scale

#: A lease of 30 s would make the crash of a quick run long.
QUICK_LEASE = {"LEASE": 3, "HEARTBEAT": 1}

Interpreter = Callable[[str], str]


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="workloads:\n" + "\n".join(f"  {name}  {what}" for name, (what, _) in WORKLOADS.items()),
    )  # fmt: skip
    add = parser.add_argument
    add("--only", default=",".join(WORKLOADS), help="workloads, separated by commas")
    add("--contenders", help="only those whose name or settings contain one of these words, separated by commas")
    add("--repeat", type=_count, help=f"undisturbed repetitions of each (default: {Scale.repeat})")
    add("--jobs", type=_count, help=f"jobs of a drain (default: {Scale.jobs:,})")
    add("--seconds", type=float, dest="peak", help=f"how long the peak of w9 lasts (default: {Scale.peak:g})")
    add("--json", type=Path, metavar="FILE", help="append every repetition as a line of JSON")
    add("--patience", type=float, help=f"seconds to wait for a calm machine before each ({Scale.patience:g})")
    add("--into", type=Path, metavar="FILE", help="put the table into this file, between its marks")
    add("--quick", action="store_true", help="little of everything, to see that it works; the figures mean nothing")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def scale_of(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else Scale()
    asked = {
        name: getattr(options, name)
        for name in ("repeat", "jobs", "patience", "peak")
        if getattr(options, name) is not None
    }
    return replace(scale, **asked)


def wanted(options: argparse.Namespace, parser: argparse.ArgumentParser) -> list[str]:
    names = [name.strip().lower() for name in options.only.split(",") if name.strip()]
    if unknown := sorted(set(names) - set(WORKLOADS)):
        parser.error(f"there is no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    return names


def run(
    options: argparse.Namespace, names: Sequence[str], entries: Sequence[Entry], python: Interpreter, mark: str
) -> int:
    """Run it all and print the table; the exit status. `python` names the interpreter for a contender, `mark` the table."""
    scale, records, failures = scale_of(options), [], 0
    words = [word.strip() for word in (options.contenders or "").split(",") if word.strip()]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reliable-jobs-bench-")))
        output = stack.enter_context(options.json.open("a")) if options.json else None
        server = stack.enter_context(Server())
        where = f"{machine_line()}; PostgreSQL: {', '.join(f'{k} {v}' for k, v in server.settings.items())}."
        print(where, "", sep="\n")
        for name in names:
            stages: list[tuple[Entry, Stage]] = []
            for number, entry in enumerate(entries):
                variant = entry.variant
                if name not in entry.workloads or (words and not any(word in str(variant) for word in words)):
                    continue
                if options.quick and variant.contender == "ours":
                    settings = variant.options.get("RELIABLE_JOBS", {}) | QUICK_LEASE
                    variant = replace(variant, options=variant.options | {"RELIABLE_JOBS": settings})
                own = folder / str(number)
                own.mkdir(exist_ok=True)
                stages.append((entry, Stage(server, variant, own, python(variant.contender))))
            for record in perform(name, stages, scale):
                if record is None:
                    failures += 1
                    continue
                records.append(record)
                if output is not None:
                    output.write(json.dumps(record) + "\n")
                    output.flush()
    where += f" {report.paces(records)}"
    table = report.table(records)
    print("", table, "", sep="\n")
    if options.into and records:
        report.put_into(options.into, mark, f"\n{time.strftime('%Y-%m-%d')}. {where}\n\n{table}\n")
    return 1 if failures or not records else 0


def perform(name: str, stages: Sequence[tuple[Entry, Stage]], scale: Scale) -> Iterator[Record | None]:
    """The records of one workload; None for each contender that failed in it.

    They take turns, one repetition each: a machine that is slower for some minutes is so for all of them.
    """
    for part in dict.fromkeys(part for entry, _ in stages for part in entry.parts(name)):
        turns = [(stage, _prepared(stage, part, scale)) for entry, stage in stages if part in entry.parts(name)]
        number = 0
        while turns:
            going = []
            for stage, repetitions in turns:
                variant = stage.variant
                try:
                    measured = next(repetitions, None)
                except RunFailed as failure:
                    print(f"{name} {variant}: {failure}", file=sys.stderr)
                    yield None
                    continue
                if measured is None:
                    continue
                going.append((stage, repetitions))
                show = ", ".join(f"{k} {round(v, 4) if isinstance(v, float) else v}" for k, v in measured.items())
                print(f"{name} {part.__name__}, {variant}: {show}", file=sys.stderr, flush=True)
                yield {
                    "workload": name, "part": part.__name__, "contender": variant.contender, "variant": variant.label,
                    "repetition": number, **measured,
                }  # fmt: skip
            turns = going
            number += 1


def _prepared(stage: Stage, part: Workload, scale: Scale) -> Iterator[Record]:
    stage.prepare()
    yield from part(stage, scale)


def machine_line() -> str:
    memory = psutil.virtual_memory().total / 2**30
    load = os.getloadavg()[0]
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB,"
        f" Python {platform.python_version()}, load {load:.2f} before the run"
    )
