"""The last hour in slices of two minutes: what was done, and what failed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from django_reliable_jobs.operations.reading import read

#: Slices of the last hour, the newest of which is not over, and their width in seconds.
SLICES, WIDTH = 30, 120
#: DONE jobs that are read of a slice (of more the rate is estimated), and attempts that are read of the hour.
SAMPLE, MOST_ATTEMPTS = 1000, 5000


@dataclass(slots=True)
class Hour:
    """One queue's last hour, the oldest slice first. None: not known, there were too many attempts to read."""

    done: list[float] = field(default_factory=lambda: [0.0] * SLICES)
    failed: list[int | None] = field(default_factory=lambda: [0] * SLICES)
    #: Some slices of `done` are scaled up from a sample.
    estimated: bool = False

    @property
    def done_total(self) -> int:
        return round(sum(self.done))

    @property
    def failed_total(self) -> int:
        return sum(each or 0 for each in self.failed)

    @property
    def failed_capped(self) -> bool:
        return None in self.failed

    @property
    def failure_rate(self) -> float | None:
        """Failed attempts of those that ended, 0 to 1, over the slices that are known; None when none ended."""
        known = [(done, failed) for done, failed in zip(self.done, self.failed, strict=True) if failed is not None]
        failures = sum(failed for _, failed in known)
        ended = failures + sum(done for done, _ in known)
        return failures / ended if ended else None


def hours(alias: str, passed: float) -> dict[str, Hour]:
    """By queue. `passed`: seconds since the start of the newest slice."""
    found: dict[str, Hour] = defaultdict(Hour)
    _fill_done(found, read(alias, "overview_done", {"width": WIDTH, "slices": SLICES, "sample": SAMPLE}), passed)
    params = {"width": WIDTH, "slices": SLICES, "most": MOST_ATTEMPTS}
    known = SLICES
    for n, queue, count, oldest in read(alias, "overview_failures", params):
        if queue is not None:
            found[queue].failed[SLICES - 1 - max(0, n)] = count
        elif count >= MOST_ATTEMPTS:
            known = _known(oldest, passed)
    if known < SLICES:
        for hour in found.values():
            hour.failed[: SLICES - known] = [None] * (SLICES - known)
    return found


def _known(oldest: float, passed: float) -> int:
    """How many of the newest slices lie wholly within the last `oldest` seconds; the newest one counts in any case."""
    return min(SLICES, max(1, 1 + int((oldest - passed) // WIDTH)))


def _fill_done(found: dict[str, Hour], rows: list[tuple[int, str, int, float]], passed: float) -> None:
    total: dict[int, int] = defaultdict(int)
    reach: dict[int, float] = defaultdict(float)
    for n, _, count, until in rows:
        total[n] += count
        reach[n] = max(reach[n], until)
    for n, queue, count, _ in rows:
        scale = 1.0
        if total[n] >= SAMPLE:
            scale = max(1.0, (passed if n == 0 else WIDTH) / max(reach[n], 0.001))
            found[queue].estimated |= scale > 1
        found[queue].done[SLICES - 1 - n] = count * scale
