"""One table of medians, from the records of all repetitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.workloads import Record

HEAD = (
    "workload", "contender", "median", "from – to", "CPU s / 1,000: worker", "database", "WAL KiB / job",
    "commits / job", "RSS MiB", "remarks",
)  # fmt: skip
NOTHING = "–"


class Key(NamedTuple):
    """What is repeated: `part` is the workload's function."""

    workload: str
    part: str
    contender: str
    variant: str


Groups = dict[Key, list[Record]]


def group(records: Iterable[Record]) -> Groups:
    """The undisturbed repetitions of each key; the disturbed ones where there is no other."""
    found: Groups = {}
    for record in records:
        found.setdefault(Key(*(record[name] for name in Key._fields)), []).append(record)
    return {key: [r for r in all_of_it if not r.get("disturbed")] or all_of_it for key, all_of_it in found.items()}


def middle(records: Sequence[Record], name: str) -> float | None:
    values = [record[name] for record in records if record.get(name) is not None]
    return median(values) if values else None


def paces(records: Iterable[Record]) -> str:
    """How evenly the machine ran: figures of different minutes compare as well as these."""
    found = [record["pace"] for record in records if "pace" in record]
    return f"The machine's pace in this run: {min(found):.2f} to {max(found):.2f} of its fastest." if found else ""


def table(records: Iterable[Record]) -> str:
    """Markdown."""
    groups = group(records)
    rows = [row for key in sorted(groups, key=_order(list(groups))) for row in _rows(key, groups[key], groups)]
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _order(keys: list[Key]) -> Callable[[Key], tuple[int, int, int]]:
    """By workload and part, and in it as they were run."""
    parts = [(key.workload, key.part) for key in keys]
    return lambda key: (int(key.workload[1:]), parts.index((key.workload, key.part)), keys.index(key))


def _rows(key: Key, records: Sequence[Record], groups: Groups) -> list[Sequence[str]]:
    remarks = _remarks(key, records, groups)

    def row(what: str, name: str, unit: str, digits: int = 0, *, resources: bool = True) -> Sequence[str]:
        values = [record[name] for record in records if record.get(name) is not None]
        shown = f"{median(values):,.{digits}f} {unit}" if values else NOTHING
        spread = f"{min(values):,.{digits}f} – {max(values):,.{digits}f}" if len(values) > 1 else NOTHING
        rest = _resources(records) if resources else [NOTHING] * 5
        return [f"{key.workload} {what}", f"{key.contender}: {key.variant}", shown, spread, *rest, remarks]

    match key.part:
        case "pickup":
            latencies = [("median", "p50"), ("99th percentile", "p99")]
            return [row(f"pickup, {what}", name, "ms", 2, resources=False) for what, name in latencies]
        case "lateness":
            latencies = [("median", "p50"), ("99th percentile", "p99")]
            return [row(f"fire of a schedule, {what}", name, "ms late", 2, resources=False) for what, name in latencies]
        case "peak":
            return [
                row("peak: all workers", "workers_share", "CPUs", 3, resources=False),
                row("peak: database", "database_share", "CPUs", 3, resources=False),
                row("peak: pickup, median", "p50", "ms", 2, resources=False),
                row("peak: pickup, 99th percentile", "p99", "ms", 2, resources=False),
            ]
        case "idle":
            return [
                row("idle worker", "idle_worker", "CPU s/s", 4, resources=False),
                row("idle worker: database", "idle_database", "CPU s/s", 4, resources=False),
                row("idle worker: statements", "statements", "/s", 1, resources=False),
            ]
        case "worker_killed":
            return [row("worker killed: all run again after", "all_again", "s", 2, resources=False)]
        case "tree_killed":
            return [row("all killed: all run again after", "all_again", "s", 2, resources=False)]
        case "behind_long" | "behind_long_claiming_ahead":
            what = "short jobs behind long ones" + (", claimed ahead" if key.part != "behind_long" else "")
            return [row(f"{what}: DONE by a second worker after", "after", "s", 2, resources=False)]
        case "claims":
            return [
                row(
                    "all slots of two workers on long jobs: claims",
                    "claims",
                    f"in {middle(records, 'seconds'):g} s",
                    resources=False,
                )
            ]
        case "one_by_one":
            return [row("single enqueue", "rate", "jobs/s")]
        case "bulk":
            return [row("bulk enqueue", "rate", "jobs/s")]
        case "two":
            return [row("drain, two workers", "rate", "jobs/s")]
        case "deep":
            return [row("drain, deep table", "rate", "jobs/s")]
        case "held":
            return [row("drain, held snapshot", "rate", "jobs/s")]
    return [row("drain", "rate", "jobs/s")]


def _resources(records: Sequence[Record]) -> list[str]:
    def show(name: str, digits: int, factor: float = 1.0) -> str:
        value = middle(records, name)
        return NOTHING if value is None else f"{value * factor:.{digits}f}"

    cpu = [show("worker_cpu", 3), show("database_cpu", 3)]
    return [*cpu, show("wal", 2, 1 / 1024), show("commits", 3), show("rss", 0)]


def _remarks(key: Key, records: Sequence[Record], groups: Groups) -> str:
    said = []
    if key.part in ("two", "deep"):
        shares = [record["rate"] / record["beside"] for record in records]
        name = "one worker" if key.part == "two" else "w1"
        said.append(f"{median(shares):.2f} × {name} in turns with it")
    raw = Key("w3", "one_by_one", "raw", "8 threads, one by one")
    if key.part == "one_by_one" and key != raw and raw in groups:
        rates = [middle(each, "rate") or 0.0 for each in (records, groups[raw])]
        said.append(f"{rates[0] / max(rates[1], 1e-9):.2f} × raw SQL")
    if key.part == "held":
        rounds = [median(values) for values in zip(*(record["rounds"] for record in records), strict=True)]
        said.append(f"rounds {', '.join(f'{one:,.0f}' for one in rounds)}: last {rounds[-1] / rounds[0]:.2f} × first")
    if key.part in ("worker_killed", "tree_killed"):
        in_flight, again = (sum(record[name] for record in records) for name in ("in_flight", "finished_and_run_again"))
        said.append(f"{in_flight} in flight, {again} finished ones run again")
        if unfinished := sum(record["unfinished"] for record in records):
            said.append(f"{unfinished} jobs not finished when the wait ended")
    if key.part.startswith("behind_long") and (first_job := middle(records, "first_job")) is not None:
        said.append(f"its first job began after {first_job:.2f} s")
    if key.part == "two" and (share := middle(records, "share")):
        said.append(f"the busier one ran {share:.0%}")
    if not all(record.get("complete", True) for record in records):
        said.append("NOT COMPLETE")
    if any(record.get("disturbed") for record in records):
        said.append("disturbed by other load, or by a machine that changed its pace")
    return "; ".join(said)


def put_into(file: Path, mark: str, text: str) -> None:
    """Replace what stands between `<!-- figures of MARK -->` and the next `<!-- end of figures -->`."""
    before, begin, rest = file.read_text().partition(f"<!-- figures of {mark} -->\n")
    _, end, after = rest.partition("<!-- end of figures -->\n")
    if not begin or not end:
        raise ValueError(f"{file} has no place for the figures of {mark}")
    file.write_text(f"{before}{begin}{text}\n{end}{after}")
