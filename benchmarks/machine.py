"""What processes use: CPU time, memory, and what the rest of the machine is busy with."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import psutil


def family(pids: Iterable[int]) -> list[psutil.Process]:
    """The processes and all their descendants."""
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            for one in (process, *process.children(recursive=True)):
                found[one.pid] = one
    return list(found.values())


def cpu(pids: Iterable[int]) -> float:
    """Seconds of CPU of these processes and their descendants, those included that have ended and were waited for."""
    total = 0.0
    for process in family(pids):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def fine_cpu(pids: Iterable[int]) -> float:
    """The same of all threads that are alive, to the microsecond where the kernel tells; for processes that do little."""
    total = 0.0
    for process in family(pids):
        files = list(Path(f"/proc/{process.pid}/task").glob("*/schedstat"))
        if not files:
            return cpu(pids)
        for file in files:
            with suppress(OSError):
                total += int(file.read_text().split()[0]) / 1e9
    return total


def busy() -> float:
    """Seconds of CPU that everything on this machine has used so far."""
    times = psutil.cpu_times()
    return float(sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal")))


class Pace:
    """How fast this machine computes now, as a share of the fastest so far.

    What else runs on its host slows a virtual machine down for minutes, and shows in none of its own figures.
    """

    def __init__(self) -> None:
        self.fastest = 0.0

    def __call__(self, samples: int = 7, steps: int = 100_000) -> float:
        def speed() -> float:
            began, total = perf_counter(), 0
            for step in range(steps):
                total += step
            return steps / (perf_counter() - began)

        now = median(speed() for _ in range(samples))
        self.fastest = max(self.fastest, now)
        return now / self.fastest


pace = Pace()


@dataclass
class Memory:
    """MiB. `worker` is the largest peak of one process, `shared_out` the sum in which a shared page counts once."""

    worker: float = 0.0
    shared_out: float = 0.0
    processes: int = 0


def memory(pids: Iterable[int]) -> Memory:
    result = Memory()
    for process in family(pids):
        with suppress(OSError, psutil.Error):
            result.worker = max(result.worker, _kib(process.pid, "status", "VmHWM:") / 1024)
            result.shared_out += _kib(process.pid, "smaps_rollup", "Pss:") / 1024
            result.processes += 1
    return result


def _kib(pid: int, file: str, field: str) -> int:
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return 0


def kill(pids: Iterable[int]) -> None:
    """SIGKILL to these processes and their descendants, and wait until they are gone."""
    processes = family(pids)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10)
