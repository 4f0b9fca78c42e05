"""A fleet does not come back to the database all at once (case P38)."""

from __future__ import annotations

import pytest

from django_reliable_jobs.worker.retry_pause import retry_pause


@pytest.mark.parametrize(("failures", "most"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 5.0), (10_000, 5.0)])
def test_a_pause_is_doubled_up_to_a_limit_and_each_worker_has_its_own(failures: int, most: float) -> None:
    pauses = [retry_pause(failures, 0.5, 5.0) for _ in range(200)]
    assert most / 2 <= min(pauses) < max(pauses) <= most
    assert len(set(pauses)) > 150
