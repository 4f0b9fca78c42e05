"""`@cron` and `@every`: schedules in code, and the names under which this process knows them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar, Unpack

from django.apps import apps
from django.conf import settings

from django_reliable_jobs import conf, payload
from django_reliable_jobs.definitions.job import JobDefinition, origin
from django_reliable_jobs.errors import JobConfigurationError
from django_reliable_jobs.schedules import (
    RULES,
    CronExpression,
    Every,
    FiringRules,
    Overlap,
    RuleOptions,
    ScheduleError,
    Timetable,
)
from django_reliable_jobs.schedules.timetable import EPOCH
from django_reliable_jobs.values.names import check_text

#: The lengths of the columns.
MAX_NAME, MAX_EXPRESSION, MAX_TIMEZONE = 200, 500, 64
#: The most that `pause_after_failures` can be; `schedules/due.sql` looks at no more runs.
MAX_PAUSE_AFTER = 1000

_by_name: dict[str, ScheduleDefinition] = {}

D = TypeVar("D", bound=JobDefinition)


@dataclass(frozen=True)
class ScheduleDefinition:
    """A schedule as code or a person defines it; `args` and `kwargs` are the JSON texts of its job's arguments.

    `source` is the label of the app whose code it is from, and empty for a person's. Raises ScheduleError for what
    cannot be.
    """

    name: str
    job: JobDefinition
    timetable: Timetable
    timezone: str
    args: str
    kwargs: str
    rules: FiringRules
    pause_after_failures: int | None = None
    source: str = ""

    def __post_init__(self) -> None:
        try:
            check_text(self.name, "a schedule's name", MAX_NAME)
        except (TypeError, ValueError) as error:
            raise ScheduleError(str(error), "name") from None
        if len(self.timetable.text) > MAX_EXPRESSION:
            raise ScheduleError(f"an expression has at most {MAX_EXPRESSION} characters")
        if len(self.timezone) > MAX_TIMEZONE:
            raise ScheduleError(f"the name of a time zone has at most {MAX_TIMEZONE} characters", "timezone")
        n = self.pause_after_failures
        if n is not None and (isinstance(n, bool) or not isinstance(n, int) or not 0 < n <= MAX_PAUSE_AFTER):
            raise ScheduleError(
                f"pause_after_failures is a whole number from 1 to {MAX_PAUSE_AFTER}, or None", "pause_after_failures"
            )
        if self.rules.overlap is Overlap.CANCEL_RUNNING and self.job.unique_key and self.job.unique_until == "finish":
            raise ScheduleError(
                "the job has a unique_key until it finishes: while the running one is being cancelled no other can be"
                ' enqueued. Use unique_until="start", or another overlap than cancel_running',
                "overlap",
            )


def cron(
    expression: str,
    *,
    timezone: str | None = None,
    name: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    pause_after_failures: int | None = None,
    **rules: Unpack[RuleOptions],
) -> Callable[[D], D]:
    """Fire the job at the times of a cron expression (five fields, or `@daily` and the like).

    - `timezone`: a name of the IANA database; default `TIME_ZONE`. Changes of the clocks: as in Vixie cron.
    - `name`: of the schedule; default the job's. One job may have several schedules.
    - `args`, `kwargs`: what the job is called with.
    - `misfire`: what becomes of fire times that are more than `misfire_grace` (60) late: `"skip"`, `"latest"` (one run for
      the newest; the default) or `"all"` (at most `catch_up_limit`, 100), within `catch_up_window` (a day).
    - `overlap`: what a fire does while the job of an earlier one is unfinished: `"allow"` (the default), `"skip"`, `"queue"`
      (one waits) or `"cancel_running"`.
    - `jitter` (0): delays each job by up to this long, the same on every pod, never past the next fire.
    - `starts_at`, `ends_at`: aware datetimes. `pause_after_failures`: pauses after so many DEAD jobs in a row.

    Durations are seconds or `timedelta`. Raises `JobConfigurationError` for an expression that cannot be read or never
    comes, a zone that is not known, and a name that is taken.
    """
    _refuse_unknown("cron", rules)

    def decorate(job: D) -> D:
        zone = timezone or settings.TIME_ZONE
        return _schedule(
            "@cron", job, lambda: CronExpression.parse(expression, zone), zone, name, args, kwargs, rules,
            pause_after_failures,
        )  # fmt: skip

    return decorate


def every(
    period: float | timedelta | None = None,
    *,
    weeks: float = 0,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    name: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    pause_after_failures: int | None = None,
    **rules: Unpack[RuleOptions],
) -> Callable[[D], D]:
    """Fire the job in each period of this length, counted from 1970-01-01 UTC: the same on all pods, over restarts.

    `every(minutes=5)`, or a number of seconds or a `timedelta`. The other options are those of `cron`.
    """
    _refuse_unknown("every", rules)

    def decorate(job: D) -> D:
        parts = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        if (period is None) == (not parts):
            raise JobConfigurationError(f"@every on {job!r}: give one period, such as every(minutes=5) or every(300).")
        return _schedule(
            "@every", job, lambda: Every(parts if period is None else period), "UTC", name, args, kwargs, rules,
            pause_after_failures,
        )  # fmt: skip

    return decorate


def _refuse_unknown(what: str, rules: RuleOptions) -> None:
    if unknown := rules.keys() - set(RULES):
        raise TypeError(f"{what}() got an unexpected keyword argument {min(unknown)!r}")


def _schedule(
    what: str,
    job: D,
    timetable: Callable[[], Timetable],  # called here, so that its errors name the job
    timezone: str,
    name: str | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    rules: RuleOptions,
    pause_after_failures: int | None,
) -> D:
    if not isinstance(job, JobDefinition):
        raise JobConfigurationError(f"{what} on {job!r}: it stands above @job, which comes first.")
    where = f"{what} on {job.name}"
    try:
        texts = encode_call(job, tuple(args), dict(kwargs or {}), payload.JSONB_LIMIT)
        definition = ScheduleDefinition(
            job.name if name is None else name, job, timetable(), timezone, *texts, FiringRules(**rules),
            pause_after_failures,
        )  # fmt: skip
    except (TypeError, ValueError) as error:  # ScheduleError and PayloadError among them
        raise JobConfigurationError(f"{where}: {error}") from error
    taken = _by_name.get(definition.name)
    if taken is not None and taken.job.name != job.name:
        raise JobConfigurationError(
            f"{where}: the schedule of {taken.job.name} is named {definition.name!r} already; give this one a name=."
        )
    if taken is not None and taken.job is job:
        raise JobConfigurationError(f"{where}: the job has a schedule of this name already; give this one a name=.")
    _by_name[definition.name] = definition
    return job


def encode_call(job: JobDefinition, args: tuple[Any, ...], kwargs: dict[str, Any], max_bytes: int) -> tuple[str, str]:
    """The JSON texts of a schedule's call; a parameter `scheduled_for` that it does not give gets the fire time later.

    Raises TypeError for arguments that the job does not take and PayloadError for those that cannot be stored.
    """
    job.check_arguments(args, job.with_fire_time(args, kwargs, EPOCH))
    return payload.dumps_call(args, kwargs, job.parameter_names, max_bytes)


def source_of(job: JobDefinition) -> str:
    """The label of the app whose code the job is; without an app its module."""
    module = origin(job.function).__module__
    config = apps.get_containing_app_config(module)
    return config.label if config is not None else module


def scoped(app: str) -> str:
    """Whose schedules those of the app's code are: each RELEASE has a set of its own."""
    release = conf.current().release
    return app if release is None else f"{app}@{release}"


def app_of(source: str) -> str:
    """The app of a source."""
    return source.partition("@")[0]


def all_schedules() -> list[ScheduleDefinition]:
    """Every schedule that the code of this process defines, by name. Django has to be set up."""
    return [replace(_by_name[name], source=scoped(source_of(_by_name[name].job))) for name in sorted(_by_name)]


def fingerprint(definitions: Iterable[ScheduleDefinition]) -> str:
    """The same for the same definitions, in any process: what tells one version of an app's code from another."""
    lines = sorted(
        repr((d.name, d.job.name, d.timetable.text, d.timezone, d.args, d.kwargs, d.rules, d.pause_after_failures))
        for d in definitions
    )
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
