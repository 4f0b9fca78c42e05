"""`make bench-peers`: this package beside other queues from PyPI, in one run on one PostgreSQL with durable defaults.

Each peer gets an environment of its own under the temporary folder and runs with its defaults, but for what its line in
the table names. A peer that cannot be installed for this Python is left out, with a line that says so.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from benchmarks import cli
from benchmarks.child import load
from benchmarks.plan import OURS, RAW, Entry
from benchmarks.stage import Variant
from testproject.postgres import PROJECT_ROOT

EVERYTHING = ("w1", "w2", "w3", "w4", "w5", "w6", "w7")
#: The slow ones get fewer jobs to drain: `scale`.
PEERS: Sequence[Entry] = (
    Entry(Variant("pgqueuer", "defaults (batches of 10)"), EVERYTHING),
    Entry(Variant("pgqueuer", "batches of 100", {"batch_size": 100}), ("w1", "w2")),
    Entry(Variant("procrastinate", "concurrency 8", scale=0.2), ("w1", "w2", "w3", "w4", "w5", "w6")),
    Entry(Variant("procrastinate", "rescue after 30 s", {"rescue": 30}, scale=0.2), ("w7",)),
    Entry(Variant("oban", "limit 8", scale=0.5), EVERYTHING),
    Entry(Variant("oban", "limit 100", {"limit": 100}), ("w1", "w2")),
    Entry(Variant("django_tasks_db", "1 process", scale=0.1), ("w1", "w2", "w3", "w4", "w5", "w6")),
    Entry(Variant("django_tasks_db", "8 processes", {"processes": 8}, scale=0.1), ("w1",)),
)


def main() -> int:
    parser = cli.arguments(str(__doc__))
    parser.add_argument("--venvs", type=Path, help="keep the environments there for the next run")
    options = parser.parse_args()
    names = cli.wanted(options, parser)
    with tempfile.TemporaryDirectory(prefix="reliable-jobs-peers-") as temporary:
        folder = (options.venvs or Path(temporary)).resolve()
        pythons = {entry.variant.contender: sys.executable for entry in (*OURS, *RAW)}
        for peer in dict.fromkeys(entry.variant.contender for entry in PEERS):
            if python := environment(peer, folder):
                pythons[peer] = python
        entries = [entry for entry in (*OURS, *RAW, *PEERS) if entry.variant.contender in pythons]
        for contender, python in pythons.items():
            print(f"{contender}: {versions(contender, python)}")
        return cli.run(options, names, entries, pythons.__getitem__, "peers")


def environment(peer: str, folder: Path) -> str | None:
    """The interpreter of the peer's environment; None when pip cannot make it."""
    home = folder / peer
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *load(peer).requirements]
    result = subprocess.run(pip, capture_output=True, text=True, check=False)
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        print(f"{peer} is left out, it cannot be installed for this Python: {reason}", file=sys.stderr)
        return None
    return str(python)


def versions(contender: str, python: str) -> str:
    command = [python, "-m", "benchmarks.child", contender, "versions"]
    return subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
