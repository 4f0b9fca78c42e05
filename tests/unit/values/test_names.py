"""Names that no database takes are refused where they are given, with the name in the error (P37); and the log stays readable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_reliable_jobs import conf, control, job
from django_reliable_jobs.control import schedules as control_schedules
from django_reliable_jobs.definitions.job import Options
from django_reliable_jobs.definitions.schedule import cron
from django_reliable_jobs.errors import JobConfigurationError
from django_reliable_jobs.fencing import fence
from django_reliable_jobs.guards import claim_once
from django_reliable_jobs.values import log_limit
from django_reliable_jobs.values.log_limit import LogLimit
from django_reliable_jobs.worker.options import parse_queues
from tests.support.probes.jobs import noop

BAD = {
    "a lone surrogate": "a\udfff",
    "bytes that were no UTF-8": b"a\xff".decode("utf-8", "surrogateescape"),
    "NUL": "a\0b",
}
bad = pytest.mark.parametrize("name", BAD.values(), ids=BAD)

PLACES: dict[str, Callable[[str], Any]] = {
    "the name of a job": lambda name: job(name=name)(lambda: None),
    "an alias": lambda name: job(name="probes.x", aliases=[name])(lambda: None),
    "a job's queue": lambda name: job(name="probes.x", queue=name)(lambda: None),
    "using a queue": lambda name: noop.using(queue=name).enqueue(),
    "a unique key": lambda name: noop.using(unique_key=name).enqueue(),
    "an idempotency key": lambda name: noop.using(idempotency_key=name).enqueue(),
    "the name of a schedule": lambda name: cron("@daily", name=name)(noop),
    "--queues": parse_queues,
    "--exclude-queues": lambda name: parse_queues(None, name),
    "pause": control.pause_queue,
    "resume": control.resume_queue,
    "run a schedule": control_schedules.run_schedule,
    "a guard's key": claim_once,
    "a fence": lambda name: fence(name, 1),
}


@bad
@pytest.mark.parametrize("give", PLACES.values(), ids=PLACES)
def test_it_is_refused_where_it_is_given(give: Callable[[str], Any], name: str) -> None:
    with pytest.raises((ValueError, JobConfigurationError, LookupError)) as refused:
        give(name)
    assert not isinstance(refused.value, UnicodeError), "which says nothing of what it was"
    str(refused.value).encode()  # it can be printed


@bad
def test_the_command_says_which_queue_it_is(name: str) -> None:
    with pytest.raises(CommandError, match="a queue cannot be stored"):
        call_command("jobworker", queues=name, burst=True)


@pytest.mark.parametrize("name", [*BAD.values(), "a b", "a,b", "a:1", "", "x" * 101])
def test_a_queue_of_the_settings(name: str) -> None:
    [problem] = conf.problems({"QUEUES": {name: {}}})
    assert "QUEUES" in problem.message
    problem.message.encode()


def test_nothing_is_offered_that_is_not_there() -> None:
    """U08."""
    [problem] = conf.problems({"OUTBOX": {"PUBLISHER": "nobody"}})
    assert "OUTBOX" in problem.message
    with pytest.raises(TypeError) as refused:
        noop.using(quue="mail")  # type: ignore[call-arg]
    offered = str(refused.value).partition("it takes ")[2].rstrip(".").split(", ")
    assert set(offered) == (set(Options.__dataclass_fields__) - {"concurrency_key"}) | {"queue_name", "run_after"}
    with pytest.raises(ValueError, match="concurrency_key"):
        noop.using(concurrency_key="k").enqueue()  # type: ignore[call-arg]


def test_a_line_comes_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(log_limit.time, "monotonic", lambda: now[0])
    limit = LogLimit()
    said = []
    for second in range(600):
        now[0] = float(second)
        said += [second for _ in range(50) if limit.due("heartbeat")]
        limit.due(("another", second))
    assert said == list(range(0, 600, 60))
    limit.forget("heartbeat")
    assert limit.due("heartbeat")
    for number in range(3 * log_limit.MOST):
        assert limit.due(number)
    assert len(limit._said) <= log_limit.MOST
