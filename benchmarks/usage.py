"""Who used how much CPU up to now, so that a run can be told from what disturbed it."""

from __future__ import annotations

import os
import time

from benchmarks import machine
from benchmarks.stage import Stage


class Usage:
    """Seconds of CPU: of the stage's workers, of the server, of this process and what it waited for, of the machine."""

    def __init__(self, stage: Stage) -> None:
        self.at = time.monotonic()
        self.worker = machine.cpu(stage.workers)
        self.server = stage.server.cpu()
        self.machine = machine.busy()
        self.own = sum(os.times()[:4])

    def others(self, since: Usage) -> float:
        """CPUs that were kept busy by something that has no part in the run."""
        ours = sum(getattr(self, name) - getattr(since, name) for name in ("worker", "server", "own"))
        return float(max(0.0, self.machine - since.machine - ours) / max(1e-6, self.at - since.at))
