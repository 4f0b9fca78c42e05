"""How long a loop of the worker waits after a failure, so that a fleet does not come back to the database all at once."""

from __future__ import annotations

import random


def retry_pause(failures: int, first: float, longest: float) -> float:
    """Seconds after that many failures in a row: doubled each time, and by chance between half of it and all."""
    return random.uniform(0.5, 1.0) * min(longest, first * 2.0 ** min(failures - 1, 10))
