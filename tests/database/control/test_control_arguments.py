"""What the verbs of `control` take, and that nothing is guessed from the rest (U03)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_reliable_jobs import control
from django_reliable_jobs.control import Report
from django_reliable_jobs.control import schedules as control_schedules
from django_reliable_jobs.models import CronSchedule, Job, JobAttempt, QueueState
from tests.support.factories import JobAttemptFactory, JobFactory, QueueStateFactory
from tests.support.schedules.tools import schedule

pytestmark = pytest.mark.django_db

#: Each with a status of which it changes a job.
VERBS: dict[str, tuple[Callable[[Any], Report], dict[str, Any]]] = {
    "cancel": (control.cancel, {}),
    "retry": (control.retry, {"dead": True}),
    "run_now": (control.run_now, {}),
    "set_priority": (lambda jobs: control.set_priority(jobs, 7), {}),
    "delete": (control.delete, {}),
}
verbs = pytest.mark.parametrize("verb", VERBS)


class Number(IntEnum):
    ONE = 1


SCALARS = st.one_of(
    st.text(), st.binary(), st.booleans(), st.none(), st.floats(), st.decimals(), st.uuids(), st.complex_numbers(),
    st.dictionaries(st.integers(), st.integers(), max_size=2), st.just(object()), st.just(Job), st.just(JobAttempt(pk=1)),
    st.just(QueueState(pk="1")), st.just(range), st.just(Job.objects),
)  # fmt: skip
WRONG = st.one_of(
    SCALARS,
    st.lists(SCALARS, min_size=1, max_size=3),
    st.tuples(st.integers(1, 5), SCALARS),
    st.sets(st.text(), min_size=1),
)


@verbs
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wrong=WRONG)
def test_what_is_no_job_is_refused_before_a_statement(verb: str, wrong: Any) -> None:
    with (
        CaptureQueriesContext(connection) as asked,
        pytest.raises(TypeError, match="a Job, an id, a list of either or a queryset"),
    ):
        VERBS[verb][0](wrong)
    assert not asked.captured_queries


@verbs
@pytest.mark.parametrize(
    "make", [JobAttempt.objects.all, QueueState.objects.all, lambda: JobAttempt.objects.values("job_id")]
)
def test_a_queryset_of_another_model_is_refused(verb: str, make: Callable[[], Any]) -> None:
    job = JobFactory(**VERBS[verb][1])
    JobAttemptFactory(pk=job.pk, job=job)
    QueueStateFactory()
    with pytest.raises(TypeError, match="not one of (JobAttempt|QueueState)"):
        VERBS[verb][0](make())
    assert Job.objects.values().get() == Job.objects.filter(pk=job.pk).values().get()


TAKEN: dict[str, Callable[[list[Job]], Any]] = {
    "jobs": lambda jobs: jobs,
    "ids": lambda jobs: [job.pk for job in jobs],
    "both": lambda jobs: (jobs[0], *(job.pk for job in jobs[1:])),
    "a set": lambda jobs: {job.pk for job in jobs},
    "a generator": lambda jobs: (job for job in jobs),
    "twice": lambda jobs: [*jobs, *(job.pk for job in jobs)],
    "a queryset": lambda jobs: Job.objects.all(),
    "a queryset of ids": lambda jobs: Job.objects.values_list("pk", flat=True),
    "a slice": lambda jobs: Job.objects.order_by("-pk")[:10],
    "a union": lambda jobs: Job.objects.filter(pk=jobs[0].pk).union(Job.objects.exclude(pk=jobs[0].pk)),
    "an evaluated one": lambda jobs: list(Job.objects.all()) and Job.objects.all(),
}


@verbs
@pytest.mark.parametrize("make", TAKEN.values(), ids=TAKEN)
def test_many_jobs_in_every_form(verb: str, make: Callable[[list[Job]], Any]) -> None:
    function, state = VERBS[verb]
    jobs = [JobFactory(**state) for _ in range(3)]
    assert sorted(function(make(jobs)).changed) == [job.pk for job in jobs]


@verbs
def test_one_job_in_every_form(verb: str) -> None:
    function, state = VERBS[verb]
    for make in (lambda job: job, lambda job: job.pk, lambda job: IntEnum("Id", {"ID": job.pk}).ID, lambda job: [job]):
        job = JobFactory(**state)
        assert function(make(job)).changed == [job.pk]
    assert function([]).changed == []


@verbs
def test_ids_that_no_job_can_have(verb: str) -> None:
    function, _ = VERBS[verb]
    for wrong in (2**63, -(2**63) - 1, 10**5000, [1, 2**70], Job()):
        with pytest.raises(ValueError, match="no job has the id|not in the table"):
            function(wrong)
    assert function(2**63 - 1).skipped.keys() == {2**63 - 1}
    assert function([0, -5]).changed == []


@pytest.mark.parametrize(
    "wrong", [5, None, True, b"report", ["report"], UUID(int=1), Decimal(1), CronSchedule(name="report")], ids=repr
)
def test_schedules_are_named_by_their_name(wrong: Any) -> None:
    schedule()
    then = CronSchedule.objects.get().resumed_at
    for verb in (
        control_schedules.pause_schedule,
        control_schedules.resume_schedule,
        control_schedules.run_schedule,
        control_schedules.delete_schedule,
        lambda name: control_schedules.backfill(name, then, then),
    ):
        with pytest.raises(TypeError, match="a schedule's name is a string"):
            verb(wrong)
    with pytest.raises(TypeError, match="backfill takes datetimes"):
        control_schedules.backfill("report", "2026-01-01", "2026-01-02")  # type: ignore[arg-type]
    assert CronSchedule.objects.count() == 1
