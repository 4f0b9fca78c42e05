"""`@cron` and `@every` refuse at import what can never work, and say what and where."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_reliable_jobs import JobConfigurationError, JobContext, job
from django_reliable_jobs.definitions import schedule as schedule_definitions
from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.definitions.schedule import cron, every
from django_reliable_jobs.running.attempt import Attempt
from django_reliable_jobs.running.context import invocation
from django_reliable_jobs.values.lease import Lease
from tests.support.schedules.clock import utc


@job(name="tests.registered")
def registered(number: int = 0) -> None: ...


@job(name="tests.registered_too")
def registered_too() -> None: ...


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an impossible field": ({"expression": "61 * * * *"}, "minute"),
    "a date that never comes": ({"expression": "0 0 30 2 *"}, "never"),
    "dates that never come": ({"expression": "0 0 31 4,6,9,11 *"}, "never"),
    "six fields": ({"expression": "*/30 * * * * *"}, "five"),
    "seven fields": ({"expression": "0 0 12 * * * 2026"}, "five"),
    "nothing": ({"expression": ""}, "five"),
    "no text": ({"expression": 5}, "string"),
    "a bad zone": ({"timezone": "America/New_Yrok"}, "did you mean America/New_York"),
    "arguments that the job does not take": ({"args": [1, 2]}, "too many"),
    "arguments that cannot be stored": ({"kwargs": {"number": {1}}}, "number"),
    "a bad misfire": ({"misfire": "perhaps"}, "misfire"),
    "a bad overlap": ({"overlap": "perhaps"}, "overlap"),
    "a naive start": ({"starts_at": datetime(2026, 1, 1)}, "aware"),
    "failures": ({"pause_after_failures": 0}, "pause_after_failures"),
    "true failures": ({"pause_after_failures": True}, "pause_after_failures"),
    "an empty name": ({"name": ""}, "name"),
    "a long name": ({"name": "x" * 201}, "200"),
    "negative jitter": ({"jitter": -1}, "jitter"),
}


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(TypeError, match=r"cron\(\) got an unexpected keyword argument 'misfires'"):
        cron("@daily", misfires="all")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"every\(\) got an unexpected keyword argument 'graze'"):
        every(60, graze=1, overlap="skip")  # type: ignore[call-arg]


@pytest.mark.parametrize(("options", "says"), WRONG.values(), ids=WRONG)
def test_what_can_never_work_is_refused_within_a_second(options: dict[str, Any], says: str) -> None:
    """C11, C12, C14."""
    began = time.perf_counter()
    with pytest.raises(JobConfigurationError, match=r"@cron on tests\.registered") as refused:
        cron(**({"expression": "0 * * * *"} | options))(registered)
    assert says in str(refused.value)
    assert time.perf_counter() - began < 1
    assert not schedule_definitions.all_schedules()


@pytest.mark.parametrize(
    "arguments", [((), {}), ((5,), {"minutes": 5}), ((0,), {}), ((-5,), {}), ((0.5,), {}), (("5m",), {})], ids=str
)
def test_a_period_that_is_none_is_refused(arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    args, kwargs = arguments
    with pytest.raises(JobConfigurationError, match="@every"):
        every(*args, **kwargs)(registered)


def test_it_stands_above_job() -> None:
    def function() -> None: ...

    for decorator in (cron("0 * * * *"), every(minutes=5)):
        with pytest.raises(JobConfigurationError, match="comes first"):
            decorator(function)  # type: ignore[arg-type]


def test_names_are_taken_once() -> None:
    cron("0 * * * *")(registered)
    with pytest.raises(JobConfigurationError, match="give this one a name="):
        cron("30 * * * *")(registered)
    every(minutes=5, name="often")(registered)
    with pytest.raises(JobConfigurationError, match=r"tests\.registered is named 'often' already"):
        every(minutes=5, name="often")(registered_too)
    assert [each.name for each in schedule_definitions.all_schedules()] == ["often", "tests.registered"]


def test_a_module_that_is_imported_again_defines_its_schedules_again() -> None:
    """As `jobworker --reload` and shells do."""
    for minute in (0, 30):

        @cron(f"{minute} * * * *")
        @job(name="tests.reloaded")
        def reloaded() -> None: ...

    [found] = schedule_definitions.all_schedules()
    assert found.timetable.text == "30 * * * *"


@override_settings(TIME_ZONE="Asia/Kathmandu")
def test_the_zone_is_the_projects_unless_it_is_given() -> None:
    cron("0 6 * * *")(registered)
    cron("0 6 * * *", timezone="UTC")(registered_too)
    assert [each.timezone for each in schedule_definitions.all_schedules()] == ["Asia/Kathmandu", "UTC"]


def test_the_app_of_a_schedule_is_that_of_its_job() -> None:
    from tests.support.probes.jobs import noop

    every(minutes=5)(noop)
    every(minutes=5)(registered)
    assert {each.name: each.source for each in schedule_definitions.all_schedules()} == {
        "probes.noop": "probes", "tests.registered": "tests.database.schedules.test_registration",
    }  # fmt: skip


def test_every_takes_all_units() -> None:
    every(timedelta(hours=1), name="a")(registered)
    every(90, name="b")(registered)
    every(days=1, hours=2, minutes=3, seconds=4, name="c")(registered)
    assert [each.timetable.text for each in schedule_definitions.all_schedules()] == [
        "@every 3600",
        "@every 90",
        "@every 93784",
    ]


# --- how the handler gets its fire time


def call(definition: JobDefinition, args: list[Any], kwargs: dict[str, Any], scheduled_for: datetime | None) -> Any:
    lease = Lease(
        job_id=1, token=1, name=definition.name, queue="default", priority=0, args="[]", kwargs="{}", attempt=1,
        max_attempts=1, losses=0, timeout=None, idempotency_key=None, scheduled_for=scheduled_for,
        run_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    variables, handler = invocation(definition, JobContext(Attempt(lease), None), args, kwargs)
    return variables.run(handler)


def test_a_parameter_of_that_name_gets_the_fire_time_unless_the_call_gives_it() -> None:
    moment, other = utc("2026-07-01 13:00"), utc("2020-01-01 00:00")

    @job(name="tests.by_keyword")
    def by_keyword(what: str = "", *, scheduled_for: datetime | None = None) -> Any:
        return scheduled_for

    @job(name="tests.by_position", takes_context=True)
    def by_position(ctx: JobContext, scheduled_for: datetime | None = None, what: str = "") -> Any:
        return scheduled_for, ctx.scheduled_for

    @job(name="tests.by_no_name", takes_context=True)
    def by_no_name(ctx: JobContext, **others: Any) -> Any:
        return others, ctx.scheduled_for

    @job(name="tests.by_position_only")
    def by_position_only(scheduled_for: str, /) -> Any:
        return scheduled_for

    assert call(by_keyword, [], {}, moment) == moment
    assert call(by_keyword, ["x"], {"scheduled_for": other}, moment) == other
    assert call(by_keyword, [], {}, None) is None
    assert call(by_position, [], {}, moment) == (moment, moment)
    assert call(by_position, [other], {}, moment) == (other, moment)
    assert call(by_no_name, [], {}, moment) == ({}, moment)
    assert call(by_position_only, ["theirs"], {}, moment) == "theirs"
